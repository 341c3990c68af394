#pragma once
// What a model weighs and what a decode step moves: counted from the tensor table, so from config.json or from the
// tensors a checkpoint really has.

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/tensor_table.h"

namespace sluice {

struct TensorTotals {
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;  // block scales are not parameters
  int64_t num_bytes = 0;       // scales included
};

struct ModelTotals {
  TensorTotals text;
  TensorTotals mtp;
};
ModelTotals model_totals(std::span<const TensorSpec> tensors);

/// Bytes of weights that one step reads, whatever its number of rows up to the skinny regime's 64.
struct StepBytes {
  int64_t fp8_linears = 0;
  int64_t scales = 0;
  int64_t bf16_linears = 0;  // includes in_proj_a, in_proj_b, mtp.fc
  int64_t lm_head = 0;       // tied: the embedding read as a head
  int64_t other = 0;         // norms, conv1d, A_log, dt_bias
  int64_t embedding = 0;     // one row
  int64_t total() const {
    return fp8_linears + scales + bf16_linears + lm_head + other + embedding;
  }
};
enum class StepPart { kTarget, kDraft };
/// kDraft: one pass of the MTP head, which reads the shared head once more. Source: model-spec 3.10.
StepBytes step_bytes(std::span<const TensorSpec> tensors, StepPart part);

/// Memory of one sequence. The state is read and written once per step; the KV cache is read once per row.
struct SequenceBytes {
  int64_t recurrent_state = 0;   // fp32, all GDN layers
  int64_t conv_state = 0;        // bf16, the newest conv_kernel_dim - 1 inputs of each channel
  int64_t kv_per_token = 0;      // bf16 keys and values, all attention layers
  int64_t mtp_kv_per_token = 0;  // the draft head's own
};
/// Source: model-spec 3.9.
SequenceBytes sequence_bytes(const ModelConfig& config);

}  // namespace sluice
