#pragma once
// Decode attention's launch contract: attn_prepare and attention of ops/attention.h as one composition, for steps of up to 64 rows.
// Plain structs and pointers only (see launch.h).

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/launch.h"

namespace sluice::cuda {

/// RMS norm and rotation of q and k, the KV write, causal attention, output gate. head_dim is 256, rotary_dim 64.
///
/// qg        [bucket, num_heads * 512] bf16: per head 256 query values, then 256 gate values
/// k, v      [bucket, num_kv_heads * 256] bf16, from the projections
/// q_norm, k_norm [256] fp32, the stored w of (1 + w)
/// cos, sin  [>= positions, 32] fp32, by absolute position
/// kv        rotated k and raw v of the step's rows are written to their pages
/// out       [bucket, num_heads * 256] bf16; rows without a run are left alone
/// scratch   attention_decode_scratch_bytes(), 16-byte aligned; holds nothing between launches
///
/// Pre: bucket (StepView::num_rows) <= 64; 1 <= num_heads / num_kv_heads <= 8; data 16-byte aligned, strides multiples of 8;
/// the step block is complete before this launch may begin; keys and values of positions before a run's first are final before
/// the step begins (they are read ahead of pdl_wait()).
struct AttentionDecode {
  int num_heads, num_kv_heads;
  Rows<const bf16> qg, k, v;
  const float *q_norm, *k_norm;
  float eps;
  Rows<const float> cos, sin;
  KvLayerView kv;
  Rows<bf16> out;
  /// Not null: the output as operands of the output projection (packed.h), rows of num_heads * 256 behind one another, instead of `out`.
  uint16_t* operands = nullptr;
  int* range_flag = nullptr;  // set to 1 where an operand cannot hold a value
  int64_t context_max;        // of any session, ever: host constant
  int num_sms;
  float* scratch;
  /// For tests: work items of 64 * 4^level positions; -1 leaves it to the plan. Bits do not depend on it.
  int span_level = -1;
};

/// Partial results, with a context of 262,144: 13 MB for one row, 38 MB up to 4, 77 MB up to 64 (132 multiprocessors); derived.
size_t attention_decode_scratch_bytes(int bucket, int num_heads, int num_kv_heads,
                                      int64_t context_max, int num_sms);

/// Two kernels under programmatic dependent launch: spans, then their merge. Both begin by letting the next kernel in.
/// spans: num_sms blocks of 512 threads, 205 to 232 KB of shared memory: it has a multiprocessor to itself, and blocks without work
/// leave at once. merge: at most 4 num_sms blocks of 128 or 256 threads, 14 or 24 KB.
cudaError_t launch_attention_decode(const AttentionDecode& args, const StepView& step,
                                    cudaStream_t stream);

}  // namespace sluice::cuda
