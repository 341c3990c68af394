#include "state/state_pool.h"

namespace sluice {
namespace {

int64_t kv_layer_elements(const ModelConfig& config) {
  return 2 * config.num_key_value_heads * kKvPageTokens * config.head_dim;
}

int64_t num_kv_layers(const ModelConfig& config) {
  return config.num_full_attention_layers() + config.mtp_num_hidden_layers;
}

/// Lowest id on top, so that a fresh pool hands them out in order.
std::vector<int32_t> full_free_list(int32_t count) {
  std::vector<int32_t> list(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) list[static_cast<size_t>(i)] = count - 1 - i;
  return list;
}

}  // namespace

GdnShape gdn_shape(const ModelConfig& config) {
  return {config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim,
          config.linear_value_head_dim};
}

StateBytes state_bytes(const ModelConfig& config) {
  const GdnShape gdn = gdn_shape(config);
  const int64_t num_gdn = config.num_linear_attention_layers();
  StateBytes bytes;
  bytes.recurrent_per_slot = num_gdn * gdn.state_size() * static_cast<int64_t>(sizeof(float));
  bytes.conv_per_slot =
      num_gdn * kConvRingColumns * gdn.qkv_width() * static_cast<int64_t>(sizeof(bf16));
  bytes.page =
      num_kv_layers(config) * kv_layer_elements(config) * static_cast<int64_t>(sizeof(bf16));
  bytes.kv_per_token = bytes.page / kKvPageTokens;
  return bytes;
}

Result<StatePool> StatePool::create(const ModelConfig& config, const StateLimits& limits,
                                    const MemoryTable& memory) {
  SLUICE_CHECK_GT(limits.num_slots, 0);
  SLUICE_CHECK_GT(limits.num_pages, 0);
  StatePool pool;
  pool.config_ = config;
  pool.limits_ = limits;
  pool.memory_ = &memory;
  pool.gdn_ = gdn_shape(config);
  pool.num_gdn_layers_ = config.num_linear_attention_layers();
  pool.num_kv_layers_ = num_kv_layers(config);
  const StateBytes bytes = state_bytes(config);
  const auto take = [&](int64_t each, int32_t count, std::string_view what) {
    return memory.allocate(static_cast<size_t>(each) * static_cast<size_t>(count), what,
                           MemoryKind::kPrivate);
  };
  SLUICE_ASSIGN_OR_RETURN(
      pool.recurrent_, take(bytes.recurrent_per_slot, limits.num_slots, "recurrent state slots"));
  SLUICE_ASSIGN_OR_RETURN(pool.conv_,
                          take(bytes.conv_per_slot, limits.num_slots, "conv state slots"));
  SLUICE_ASSIGN_OR_RETURN(pool.pages_, take(bytes.page, limits.num_pages, "KV pages"));
  pool.free_slots_ = full_free_list(limits.num_slots);
  pool.free_pages_ = full_free_list(limits.num_pages);
  return pool;
}

Result<Sequence> StatePool::open() {
  if (free_slots_.size() < 2) {
    return resource_exhausted("all {} state slots are taken (two for each open session)",
                              limits_.num_slots);
  }
  Sequence sequence;
  const auto take = [this] {
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    clear_slot(slot);
    return slot;
  };
  sequence.slot = take();
  sequence.checkpoint_slot = take();
  sequence.page_table.reserve(static_cast<size_t>(pages_for(limits_.context_max)));
  return sequence;
}

void StatePool::close(Sequence* sequence) {
  SLUICE_CHECK(sequence->is_open());
  free_slots_.push_back(sequence->checkpoint_slot);
  free_slots_.push_back(sequence->slot);
  for (auto page = sequence->page_table.rbegin(); page != sequence->page_table.rend(); ++page) {
    free_pages_.push_back(*page);
  }
  *sequence = Sequence();
}

Status StatePool::reserve(Sequence* sequence, int64_t num_tokens) {
  SLUICE_CHECK(sequence->is_open());
  if (num_tokens > limits_.context_max) {
    return resource_exhausted(
        "{} tokens do not fit the context of {}; raise --context or begin a new session",
        num_tokens, limits_.context_max);
  }
  const int64_t missing = pages_for(num_tokens) - static_cast<int64_t>(sequence->page_table.size());
  if (missing > num_free_pages()) {
    return resource_exhausted("{} KV pages of {} tokens are needed, {} of {} are free", missing,
                              kKvPageTokens, num_free_pages(), limits_.num_pages);
  }
  for (int64_t i = 0; i < missing; ++i) {
    sequence->page_table.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  return Status();
}

RowRun StatePool::next_run(const Sequence& sequence, int32_t first_row, int32_t num_rows) const {
  SLUICE_CHECK_LE(pages_for(sequence.position + num_rows),
                  static_cast<int64_t>(sequence.page_table.size()));
  RowRun run;
  run.first_row = first_row;
  run.num_rows = num_rows;
  run.position = static_cast<int32_t>(sequence.position);
  run.slot = sequence.slot;
  run.checkpoint_slot = sequence.checkpoint_slot;
  run.page_table = sequence.page_table.data();
  return run;
}

void StatePool::advance(Sequence* sequence, int64_t num_rows, bool checkpoint_filled) {
  const int64_t end = sequence->position + num_rows;
  const int64_t boundary = end / kGdnChunk * kGdnChunk;
  if (checkpoint_filled && boundary > sequence->position) sequence->checkpoint_position = boundary;
  sequence->position = end;
}

void StatePool::save_checkpoint(Sequence* sequence) {
  SLUICE_CHECK_EQ(sequence->position % kGdnChunk, 0);
  copy_slot(sequence->slot, sequence->checkpoint_slot);
  sequence->checkpoint_position = sequence->position;
}

void StatePool::restore_checkpoint(Sequence* sequence) {
  copy_slot(sequence->checkpoint_slot, sequence->slot);
  sequence->position = sequence->checkpoint_position;
}

RecurrentLayerView StatePool::recurrent_layer(int64_t gdn_layer_idx) const {
  SLUICE_CHECK_LT(gdn_layer_idx, num_gdn_layers_);
  RecurrentLayerView view;
  view.data = reinterpret_cast<float*>(recurrent_.data()) + gdn_layer_idx * gdn_.state_size();
  view.slot_stride = num_gdn_layers_ * gdn_.state_size();
  return view;
}

ConvLayerView StatePool::conv_layer(int64_t gdn_layer_idx) const {
  SLUICE_CHECK_LT(gdn_layer_idx, num_gdn_layers_);
  const int64_t ring = kConvRingColumns * gdn_.qkv_width();
  ConvLayerView view;
  view.data = reinterpret_cast<bf16*>(conv_.data()) + gdn_layer_idx * ring;
  view.slot_stride = num_gdn_layers_ * ring;
  view.num_channels = gdn_.qkv_width();
  return view;
}

KvLayerView StatePool::kv_layer(int64_t attention_layer_idx) const {
  SLUICE_CHECK_LT(attention_layer_idx, num_kv_layers_);
  KvLayerView view;
  view.data =
      reinterpret_cast<bf16*>(pages_.data()) + attention_layer_idx * kv_layer_elements(config_);
  view.page_stride = num_kv_layers_ * kv_layer_elements(config_);
  view.num_kv_heads = config_.num_key_value_heads;
  view.head_dim = config_.head_dim;
  return view;
}

void StatePool::clear_slot(int32_t slot) {
  // The conv ring needs no clearing: positions before 0 are never read.
  const auto bytes = static_cast<size_t>(state_bytes(config_).recurrent_per_slot);
  memory_->clear(recurrent_.data() + static_cast<size_t>(slot) * bytes, bytes);
}

void StatePool::copy_slot(int32_t from, int32_t to) {
  const StateBytes bytes = state_bytes(config_);
  const auto copy = [this, from, to](std::byte* base, int64_t stride) {
    const auto size = static_cast<size_t>(stride);
    memory_->copy(base + static_cast<size_t>(to) * size, base + static_cast<size_t>(from) * size,
                  size);
  };
  copy(recurrent_.data(), bytes.recurrent_per_slot);
  copy(conv_.data(), bytes.conv_per_slot);
}

void StatePool::check_integrity(std::span<const Sequence* const> open) const {
  std::vector<int> slot_owners(static_cast<size_t>(limits_.num_slots));
  std::vector<int> page_owners(static_cast<size_t>(limits_.num_pages));
  for (const int32_t slot : free_slots_) ++slot_owners.at(static_cast<size_t>(slot));
  for (const int32_t page : free_pages_) ++page_owners.at(static_cast<size_t>(page));
  for (const Sequence* sequence : open) {
    ++slot_owners.at(static_cast<size_t>(sequence->slot));
    ++slot_owners.at(static_cast<size_t>(sequence->checkpoint_slot));
    for (const int32_t page : sequence->page_table) ++page_owners.at(static_cast<size_t>(page));
    SLUICE_CHECK_LE(sequence->position,
                    static_cast<int64_t>(sequence->page_table.size()) * kKvPageTokens);
    SLUICE_CHECK_LE(sequence->checkpoint_position, sequence->position);
    SLUICE_CHECK_EQ(sequence->checkpoint_position % kGdnChunk, 0);
  }
  for (const int owners : slot_owners) SLUICE_CHECK_EQ(owners, 1);
  for (const int owners : page_owners) SLUICE_CHECK_EQ(owners, 1);
}

}  // namespace sluice
