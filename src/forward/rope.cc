#include "forward/rope.h"

#include <cmath>
#include <vector>

#include "base/bf16.h"

namespace sluice {

Result<RopeTable> RopeTable::create(const ModelConfig& config, int64_t context_max,
                                    const MemoryTable& memory) {
  RopeTable table;
  table.context_max_ = context_max;
  table.num_freqs_ = config.rotary_dim / 2;
  const auto count = static_cast<size_t>(2 * context_max * table.num_freqs_);
  SLUICE_ASSIGN_OR_RETURN(
      table.buffer_, memory.allocate(count * sizeof(float), "RoPE table", MemoryKind::kPrivate));
  std::vector<float> inv_freq(static_cast<size_t>(table.num_freqs_));
  for (int64_t i = 0; i < table.num_freqs_; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(config.rotary_dim);
    inv_freq[static_cast<size_t>(i)] =
        1.0f / static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent)));
  }
  std::vector<float> values(count);
  float* cos = values.data();
  float* sin = cos + context_max * table.num_freqs_;
  for (int64_t position = 0; position < context_max; ++position) {
    for (const float freq : inv_freq) {
      const auto angle = static_cast<double>(static_cast<float>(position) * freq);
      *cos++ = rb(static_cast<float>(std::cos(angle)));
      *sin++ = rb(static_cast<float>(std::sin(angle)));
    }
  }
  memory.upload(table.buffer_.data(), values.data(), count * sizeof(float));
  return table;
}

MatView<const float> RopeTable::view(int64_t which) const {
  const auto* data = reinterpret_cast<const float*>(buffer_.data());
  return MatView<const float>(data + which * context_max_ * num_freqs_, context_max_, num_freqs_);
}

}  // namespace sluice
