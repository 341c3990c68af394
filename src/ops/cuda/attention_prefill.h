#pragma once
// Prefill attention's launch contract: attn_prepare and attention of ops/attention.h as one composition, for steps of many rows on sm_90a.
// Plain structs and pointers only (see launch.h).

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/launch.h"

namespace sluice::cuda {

/// RMS norm and rotation of q and k, the KV write, causal attention, output gate. head_dim is 256, rotary_dim 64.
///
/// qg        [num_rows, num_heads * 512] bf16: per head 256 query values, then 256 gate values
/// k, v      [num_rows, num_kv_heads * 256] bf16, from the projections
/// q_norm, k_norm [256] fp32, the stored w of (1 + w)
/// cos, sin  [>= positions, 32] fp32, by absolute position
/// kv        rotated k and raw v of the step's rows are written to their pages; values of the positions behind a run's last one, up to the next multiple of 64, are
///           zeroed (nobody's yet, and a weight of zero times what is no number is no number)
/// operands  [num_rows, num_heads * 256] f16(out * 2^-4) in operand order (packed.h); rows without a run are left alone
///
/// Pre: data 16-byte aligned, strides multiples of 8, kv.page_stride a multiple of 256, kv.data 16-byte aligned; no two runs write to one page; a run's page table
/// covers position + num_rows, keys and values of positions before the run's first are final; num_heads is num_kv_heads times 1 .. 8.
struct AttentionPrefill {
  int num_heads, num_kv_heads;
  Rows<const bf16> qg, k, v;
  const float *q_norm, *k_norm;
  float eps;
  Rows<const float> cos, sin;
  KvLayerView kv;
  uint16_t* operands;
  int* range_flag;  // set to 1 where an operand cannot hold a value
  int64_t
      context_max;  // no run of this step ends behind it; decides, with the step's counts, whether contexts are split
  int num_sms;
  void* scratch;  // 128-byte aligned; holds nothing between launches
  size_t scratch_bytes;
  // For tests; bits depend on none of them.
  int split = -1;  // contexts shared out: 0 never, 1 if the scratch has room, -1 as the plan says
  bool tiles_from_first_row =
      false;  // query tiles begin at the run's first row instead of at absolute places
};

/// What a launch cannot do without. With more, contexts of few rows are split; `context_max` and the result may be passed on as they are.
size_t attention_prefill_scratch_bytes(int num_rows, int num_runs, int num_heads, int num_kv_heads,
                                       int num_sms);
/// With which contexts up to `context_max` are split at every number of rows for which that pays.
size_t attention_prefill_split_bytes(int num_rows, int num_runs, int num_heads, int num_kv_heads,
                                     int64_t context_max, int num_sms);

/// Two or three kernels under programmatic dependent launch: prepare, attention, and the merge of split contexts.
/// attention: at most num_sms blocks of 384 threads in clusters of 2, 225 KB of shared memory.
cudaError_t launch_attention_prefill(const AttentionPrefill& args, const StepView& step,
                                     cudaStream_t stream);

}  // namespace sluice::cuda
