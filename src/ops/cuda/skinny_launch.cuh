#pragma once
// Host side of the skinny kernels.

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/skinny.cuh"

namespace sluice::cuda {

/// Has the input a form that the kernels take?
bool is_acceptable(const SkinnyInput& in, int num_in);

/// Shares `num_tiles` out among the blocks.
void plan_tiles(const SkinnyMachine& machine, int num_tiles, int num_in, SkinnyPlan* plan);

/// Sums of a part.
SLUICE_HOST_DEVICE inline int part_floats(const SkinnyPlan& plan, int num_rows) {
  return plan.joined_tiles * kTileRows * num_rows;
}

/// Several rows' operands are worth it to be read once for two blocks.
inline bool can_pair(const SkinnyMachine& machine, int num_rows) {
  return num_rows >= kPairedRowsMin && machine.num_sms % 2 == 0 && compute_capability() == 90;
}

/// Fills in ring and places in shared memory. A ring grows in steps of so many slots and bytes. False when a block's shared memory is too small for the rows.
bool plan_shared(const SkinnyMachine& machine, int num_rows, int step_slots, int step_bytes,
                 SkinnyPlan* plan);

/// A block on every multiprocessor.
inline ChainedLaunch launch_of(const SkinnyMachine& machine, const SkinnyPlan& plan) {
  return {dim3(static_cast<unsigned>(machine.num_sms)), kSkinnyThreads, plan.smem_bytes,
          plan.pairs ? 2 : 1};
}

/// One output of an input of any width; `adds`: to what `output.out` holds.
cudaError_t launch_streamed(const SkinnyMachine& machine, const SkinnyInput& input,
                            const SkinnyOutput& output, bool adds, cudaStream_t stream);

}  // namespace sluice::cuda
