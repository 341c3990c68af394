#include "verify/fingerprint.h"

#include <xxhash.h>

#include <algorithm>

namespace sluice {
namespace {

template <typename T>
uint64_t hash_of(const MemoryTable& memory, uint64_t seed, const T* from, int64_t count) {
  const std::vector<T> values = fetch(memory, from, count);
  return XXH3_64bits_withSeed(values.data(), values.size() * sizeof(T), seed);
}

uint64_t conv_hash(const MemoryTable& memory, const ConvLayerView& view, const Sequence& sequence) {
  uint64_t hash = 0;
  const int64_t first = std::max<int64_t>(0, sequence.position - (kConvTaps - 1));
  for (int64_t position = first; position < sequence.position; ++position) {
    hash = hash_of(memory, hash, view.column(sequence.slot, position), view.num_channels);
  }
  return hash;
}

uint64_t kv_hash(const MemoryTable& memory, const KvLayerView& view, const Sequence& sequence) {
  uint64_t hash = 0;
  for (int64_t position = 0; position < sequence.position; ++position) {
    const int32_t page = sequence.page_table[static_cast<size_t>(position / kKvPageTokens)];
    const int64_t token = position % kKvPageTokens;
    for (int64_t head = 0; head < view.num_kv_heads; ++head) {
      hash = hash_of(memory, hash, view.k_row(page, head, token), view.head_dim);
      hash = hash_of(memory, hash, view.v_row(page, head, token), view.head_dim);
    }
  }
  return hash;
}

}  // namespace

void Fingerprint::add_rows(const MemoryTable& memory, std::string name, const StepOutput& output) {
  for (int64_t i = 0; i < output.logits.num_rows; ++i) {
    const uint64_t hash = hash_of(host_memory(), 0, output.logits.row(i), output.logits.num_cols);
    parts.push_back({fmt::format("{} row {} logits", name, i), hash});
  }
  for (int64_t i = 0; i < output.hidden.num_rows; ++i) {
    const uint64_t hash = hash_of(memory, 0, output.hidden.row(i), output.hidden.num_cols);
    parts.push_back({fmt::format("{} row {} hidden", name, i), hash});
  }
}

void Fingerprint::add_state(ModelRunner& runner, const Sequence& sequence) {
  const ModelConfig& config = runner.config();
  const StatePool& state = runner.state();
  const int64_t size = gdn_shape(config).state_size();
  for (int64_t i = 0; i < config.num_linear_attention_layers(); ++i) {
    parts.push_back(
        {fmt::format("recurrent state of GDN layer {}", i),
         hash_of(state.memory(), 0, state.recurrent_layer(i).slot(sequence.slot), size)});
    parts.push_back({fmt::format("conv state of GDN layer {}", i),
                     conv_hash(state.memory(), state.conv_layer(i), sequence)});
  }
  for (int64_t i = 0; i < config.num_full_attention_layers(); ++i) {
    parts.push_back({fmt::format("keys and values of attention layer {}", i),
                     kv_hash(state.memory(), state.kv_layer(i), sequence)});
  }
}

std::string first_difference(const Fingerprint& a, const Fingerprint& b) {
  SLUICE_CHECK_EQ(a.parts.size(), b.parts.size());
  for (size_t i = 0; i < a.parts.size(); ++i) {
    SLUICE_CHECK_EQ(a.parts[i].name, b.parts[i].name);
    if (a.parts[i].hash != b.parts[i].hash) return a.parts[i].name;
  }
  return "";
}

}  // namespace sluice
