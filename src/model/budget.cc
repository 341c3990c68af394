#include "model/budget.h"

namespace sluice {

ModelTotals model_totals(std::span<const TensorSpec> tensors) {
  ModelTotals totals;
  for (const TensorSpec& tensor : tensors) {
    TensorTotals& part = tensor.is_mtp ? totals.mtp : totals.text;
    ++part.num_tensors;
    part.num_bytes += tensor.num_bytes();
    if (tensor.role != TensorRole::kScale) part.num_parameters += tensor.num_elements();
  }
  return totals;
}

namespace {

void add_weight(const TensorSpec& tensor, StepBytes* bytes) {
  const bool is_fp8 = tensor.dtype == Dtype::kF8E4M3;
  switch (tensor.role) {
    case TensorRole::kLinear:
    case TensorRole::kPlainLinear:
      (is_fp8 ? bytes->fp8_linears : bytes->bf16_linears) += tensor.num_bytes();
      break;
    case TensorRole::kScale:
      bytes->scales += tensor.num_bytes();
      break;
    case TensorRole::kEmbedding:
    case TensorRole::kLmHead:
      break;  // shared by both parts; the caller counts them
    case TensorRole::kZeroCentredNorm:
    case TensorRole::kGatedNorm:
    case TensorRole::kALog:
    case TensorRole::kDtBias:
    case TensorRole::kConv1d:
      bytes->other += tensor.num_bytes();
      break;
  }
}

}  // namespace

StepBytes step_bytes(std::span<const TensorSpec> tensors, StepPart part) {
  StepBytes bytes;
  const TensorSpec* embedding = nullptr;
  const TensorSpec* head = nullptr;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role == TensorRole::kEmbedding) embedding = &tensor;
    if (tensor.role == TensorRole::kLmHead) head = &tensor;
    if (tensor.is_mtp == (part == StepPart::kDraft)) add_weight(tensor, &bytes);
  }
  if (embedding != nullptr) {
    bytes.embedding = embedding->num_bytes() / embedding->shape[0];
    bytes.lm_head = (head != nullptr ? head : embedding)->num_bytes();
  }
  return bytes;
}

SequenceBytes sequence_bytes(const ModelConfig& config) {
  const int64_t num_gdn = config.num_linear_attention_layers();
  constexpr int64_t kF32Bytes = 4;
  constexpr int64_t kBf16Bytes = 2;
  SequenceBytes bytes;
  bytes.recurrent_state =
      num_gdn * config.linear_value_dim() * config.linear_key_head_dim * kF32Bytes;
  bytes.conv_state = num_gdn * config.conv_dim() * (config.linear_conv_kernel_dim - 1) * kBf16Bytes;
  const int64_t kv_per_layer = 2 * config.key_value_dim() * kBf16Bytes;
  bytes.kv_per_token = config.num_full_attention_layers() * kv_per_layer;
  bytes.mtp_kv_per_token = kv_per_layer;
  return bytes;
}

}  // namespace sluice
