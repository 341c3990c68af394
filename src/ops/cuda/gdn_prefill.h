#pragma once
// What lies between a GDN layer's input and output projections where runs have many rows: the chunk form.

#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/launch.h"

namespace sluice::cuda {

/// Value heads of a key head that launch_gdn_prefill takes.
constexpr int kGdnPrefillGroupMax = 3;

/// conv1d + SiLU (ops/conv1d.h), gdn_gates, gdn_chunk (ops/gdn.h) and gated_rms_norm (ops/norm.h) for runs of any length, with those contracts' roundings and promises:
///
///   operands = f16 operands of gated_rms_norm(gdn_chunk(silu(conv1d(qkv)), gates(a, b)), z)
///
/// qkv         [num_rows, 2 * num_k_heads * 128 + num_v_heads * 128] bf16, raw projections
/// z           [num_rows, num_v_heads * 128] bf16
/// a, b        [num_rows, num_v_heads] bf16
/// conv_weight [channels, 4] fp32;  A_log, dt_bias [num_v_heads] fp32;  norm [128] fp32, plain
/// conv, state read at each run's position, left at its end; a run's checkpoint slot gets both as they were at the last multiple of kGdnChunk in
///             (position, position + num_rows]
/// operands    [num_rows, num_v_heads * 128] f16 in operand order (packed.h), rows behind one another; row 0 is the step's first. Rows of no run stay as they are
/// scratch     gdn_prefill_scratch_bytes() of anything; what does not fit in scratch_chunks at once goes through it in turns, to the same bits
///
/// Rounded, beside what the contracts round: the state, the errors v - S^T k and their solution enter the matrix instructions as two f16 each (22 bits, absolute floor
/// 2^-25, at most 65,504: beyond, the range flag), the 64 x 64 triangles likewise (absolute floor 2^-35); q and k enter unnormalised, bf16 as f16 (exact to 2^-35 of
/// the norm). Sums are fp32.
struct GdnPrefill {
  int num_k_heads, num_v_heads;
  Rows<const bf16> qkv, z, a, b;
  const float *conv_weight, *A_log, *dt_bias, *norm;
  float eps;
  ConvLayerView conv;
  RecurrentLayerView state;
  uint16_t* operands;
  /// If not null: the values, rounded to bf16, come here as e4m3 (the same bits as launch_fp8_operands), and not to `operands`. A row is num_v_heads * 128 wide.
  Fp8Operands fp8;
  int* range_flag;  // set to 1 where an operand cannot hold a value
  void* scratch;    // 256-byte aligned
  int scratch_chunks;
};

/// Of `chunks` chunks, for all the heads.
size_t gdn_prefill_scratch_bytes(int num_k_heads, int num_v_heads, int chunks);

/// `runs` lies in host memory and is read before the call returns; page tables are not used.
///
/// Pre: heads are 128 wide; num_v_heads / num_k_heads is whole and at most kGdnPrefillGroupMax; each run has position % kGdnChunk == 0 and num_rows >= 1; runs are of
/// different slots, checkpoint slots (or kNoSlot) of no run; qkv, z, operands and the rings are 16-byte aligned with strides of whole 16 bytes, conv_weight and norm
/// 16-byte aligned. Runs are kernel arguments: not for recorded graphs of steps. sm_90a. cudaErrorInvalidValue on a shape it does not have.
cudaError_t launch_gdn_prefill(const GdnPrefill& args, const RowRun* runs, int num_runs,
                               cudaStream_t stream);

}  // namespace sluice::cuda
