#include "apps/bench/step_traffic.h"

#include "model/budget.h"
#include "model/weights_visit.h"

namespace sluice {

int64_t packed_weight_bytes(const WeightView& weight) {
  const int64_t values = weight.num_out * weight.num_in;
  constexpr auto kScaleBytes = static_cast<int64_t>(sizeof(float));
  if (weight.format == WeightFormat::kBf16) return 2 * values + kScaleBytes * weight.num_out;
  const int64_t scale_rows = (weight.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
  return values + kScaleBytes * scale_rows * weight.scale_cols();
}

int64_t all_weight_bytes(const ModelWeights& weights) {
  ModelWeights visited = weights;
  int64_t bytes = packed_weight_bytes(weights.lm_head);
  for_each_tensor(
      visited, [&](const WeightView& w) { bytes += packed_weight_bytes(w); },
      [&](const VectorView& v) { bytes += static_cast<int64_t>(v.size_bytes()); });
  return bytes;
}

int64_t state_traffic(const ModelConfig& config, int64_t num_sessions, int64_t num_rows) {
  const SequenceBytes bytes = sequence_bytes(config);
  const int64_t conv_row = bytes.conv_state / (config.linear_conv_kernel_dim - 1);
  return num_sessions * (2 * bytes.recurrent_state + bytes.conv_state) + num_rows * conv_row;
}

int64_t kv_traffic(const ModelConfig& config, int64_t num_sessions, int64_t context) {
  return num_sessions * context * sequence_bytes(config).kv_per_token;
}

}  // namespace sluice
