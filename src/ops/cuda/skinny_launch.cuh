#pragma once
// Host side of the skinny kernels.

#include <cuda_runtime_api.h>

#include <utility>

#include "ops/cuda/skinny.cuh"

namespace sluice::cuda {

/// Launches a kernel that obeys pdl.cuh, so that it may begin while the one before it ends.
template <auto kKernel, typename... Args>
cudaError_t launch_chained(int num_blocks, int num_threads, int smem_bytes, cudaStream_t stream,
                           const Args&... args) {
  static int smem_set = 48 << 10;  // this kernel's; what needs no asking
  if (smem_bytes > smem_set) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    if (error != cudaSuccess) return error;
    smem_set = smem_bytes;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(num_threads));
  config.dynamicSmemBytes = static_cast<size_t>(smem_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kKernel, args...);
}

/// Has the input a form that the kernels take?
bool is_acceptable(const SkinnyInput& in, int num_in);

/// Shares `num_tiles` out among the blocks.
void plan_tiles(const SkinnyMachine& machine, int num_tiles, int num_in, SkinnyPlan* plan);

/// Fills in ring and places in shared memory. A ring grows in steps of so many slots and bytes. False when a block's shared memory is too small for the rows.
bool plan_shared(const SkinnyMachine& machine, int num_rows, int step_slots, int step_bytes,
                 SkinnyPlan* plan);

/// One output of an input of any width; `adds`: to what `output.out` holds.
cudaError_t launch_streamed(const SkinnyMachine& machine, const SkinnyInput& input,
                            const SkinnyOutput& output, bool adds, cudaStream_t stream);

}  // namespace sluice::cuda
