#include "verify/state_difference.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

void append(const MemoryTable& memory, const bf16* from, int64_t count, std::vector<float>* out) {
  const std::vector<bf16> values = fetch(memory, from, count);
  std::transform(values.begin(), values.end(), std::back_inserter(*out), to_float);
}

std::vector<float> recurrent(const ModelConfig& c, int64_t state_rows, const MemoryTable& memory,
                             const float* from) {
  const std::vector<float> slot = fetch(memory, from, gdn_shape(c).state_size());
  std::vector<float> out;
  for (int64_t head = 0; head < c.linear_num_value_heads; ++head) {
    const float* of_head = slot.data() + head * c.linear_key_head_dim * c.linear_value_head_dim;
    for (int64_t row = 0; row < c.linear_key_head_dim; row += state_rows) {
      const float* values = of_head + row * c.linear_value_head_dim;
      out.insert(out.end(), values, values + c.linear_value_head_dim);
    }
  }
  return out;
}

std::vector<float> conv(const MemoryTable& memory, const ConvLayerView& view, int32_t slot,
                        int64_t num_tokens) {
  constexpr int64_t kKept = kConvTaps - 1;
  std::vector<float> out(static_cast<size_t>(view.num_channels * kKept));
  for (int64_t i = 0; i < kKept; ++i) {
    const int64_t position = num_tokens - kKept + i;
    if (position < 0) continue;
    const std::vector<bf16> column = fetch(memory, view.column(slot, position), view.num_channels);
    for (int64_t channel = 0; channel < view.num_channels; ++channel) {
      out[static_cast<size_t>(channel * kKept + i)] =
          to_float(column[static_cast<size_t>(channel)]);
    }
  }
  return out;
}

std::vector<float> cached(const MemoryTable& memory, const KvLayerView& view,
                          const Sequence& sequence, bool is_key, int64_t count) {
  std::vector<float> out;
  for (int64_t head = 0; head < view.num_kv_heads; ++head) {
    for (int64_t position = sequence.position - count; position < sequence.position; ++position) {
      const int32_t page = sequence.page_table[static_cast<size_t>(position / kKvPageTokens)];
      const int64_t token = position % kKvPageTokens;
      append(memory, is_key ? view.k_row(page, head, token) : view.v_row(page, head, token),
             view.head_dim, &out);
    }
  }
  return out;
}

}  // namespace

double state_difference(const GoldenState& golden, int64_t state_rows, ModelRunner& runner,
                        const Sequence& sequence) {
  SLUICE_CHECK_EQ(sequence.position, golden.num_tokens);
  const int64_t layer = mixer_idx(runner.config(), golden.layer);
  StatePool& state = runner.state();
  std::vector<float> ours;
  switch (golden.kind) {
    case GoldenState::Kind::kRecurrent:
      ours = recurrent(runner.config(), state_rows, state.memory(),
                       state.recurrent_layer(layer).slot(sequence.slot));
      break;
    case GoldenState::Kind::kConv:
      ours = conv(state.memory(), state.conv_layer(layer), sequence.slot, golden.num_tokens);
      break;
    case GoldenState::Kind::kKey:
    case GoldenState::Kind::kValue:
      ours = cached(state.memory(), state.kv_layer(layer), sequence,
                    golden.kind == GoldenState::Kind::kKey, golden.shape[1]);
      break;
  }
  SLUICE_CHECK_EQ(ours.size(), golden.values.size());
  double difference = 0.0;
  double norm = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double d = static_cast<double>(ours[i]) - golden.values[i];
    difference += d * d;
    norm += static_cast<double>(golden.values[i]) * golden.values[i];
  }
  if (norm == 0.0) return difference == 0.0 ? 0.0 : INFINITY;
  const double relative = std::sqrt(difference / norm);
  return std::isfinite(relative) ? relative : INFINITY;
}

}  // namespace sluice
