#pragma once
// What lies between a GDN layer's input and output projections, in one launch.

#include "ops/cuda/launch.h"

namespace sluice::cuda {

/// Rows of a step that launch_gdn_core takes.
constexpr int kGdnCoreRowsMax = 64;

/// conv1d + SiLU (ops/conv1d.h), gdn_gates, gdn_step (ops/gdn.h) and gated_rms_norm (ops/norm.h),
/// with those contracts' roundings and promises:
///
///   core = gated_rms_norm(gdn_step(silu(conv1d(qkv)), gates(a, b)), z)
///
/// qkv         [num_rows, 2 * num_k_heads * 128 + num_v_heads * 128] bf16, raw projections
/// z, core     [num_rows, num_v_heads * 128] bf16
/// a, b        [num_rows, num_v_heads] bf16
/// conv_weight [channels, 4] fp32;  A_log, dt_bias [num_v_heads] fp32;  norm [128] fp32, plain
/// conv, state read at each run's position, left at its end; a run's checkpoint_slot gets both as
///             they were at the last multiple of kGdnChunk in (position, position + num_rows]
/// tickets     [kGdnCoreRowsMax, num_k_heads], 0 before the first launch and again after each; for
///             launches that follow one another, not side by side
struct GdnCore {
  int num_k_heads, num_v_heads;
  Rows<const bf16> qkv, z, a, b;
  const float *conv_weight, *A_log, *dt_bias, *norm;
  float eps;
  ConvLayerView conv;
  RecurrentLayerView state;
  int* tickets;
  Rows<bf16> core;
  /// Not null: the core as operands of the output projection (packed.h), rows of num_v_heads * 128 behind one another, instead of `core`.
  uint16_t* operands = nullptr;
  int* range_flag = nullptr;  // set to 1 where an operand cannot hold a value
};

/// Pre: heads are 128 wide, num_v_heads is a multiple of num_k_heads; step.num_rows (the bucket) is at
/// most kGdnCoreRowsMax and step.num_runs the most runs it can hold; live runs come in any place of
/// step.runs, those of no rows are skipped; runs are of different slots, checkpoint slots of no
/// run; qkv, z, core, conv and state are 16-byte aligned with strides of whole 16 bytes; conv_weight
/// and norm are 16-byte aligned.
/// Launched with programmatic stream serialization where the device has it: reads the step block,
/// weights and old state before pdl_wait(), all else behind it. cudaErrorInvalidValue on a shape it
/// does not have.
cudaError_t launch_gdn_core(const GdnCore& args, const StepView& step, cudaStream_t stream);

}  // namespace sluice::cuda
