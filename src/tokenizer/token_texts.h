#pragma once
// The vocabulary as spelled in tokenizer.json: text <-> id, while the file is read.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace sluice {

/// Views into the parsed file, which must outlive this. Eight bytes a slot: three lookups a merge miss the nearest caches.
class TokenTexts {
 public:
  void reserve(size_t num_tokens) {
    size_t num_slots = 16;
    while (num_slots < 2 * num_tokens) num_slots *= 2;
    slots_.assign(num_slots, {});
    texts_.reserve(num_tokens);
  }
  /// Pre: neither the text nor the id is there yet; no more than were reserved; id >= 0.
  void insert(std::string_view text, int32_t id) {
    const uint32_t hash = hash_of(text);
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot].id >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = {hash, id};
    if (texts_.size() <= static_cast<size_t>(id)) texts_.resize(static_cast<size_t>(id) + 1);
    texts_[static_cast<size_t>(id)] = text;
    ++num_tokens_;
  }
  std::optional<int32_t> id(std::string_view text) const {
    const uint32_t hash = hash_of(text);
    for (size_t slot = hash & (slots_.size() - 1); slots_[slot].id >= 0;
         slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].hash == hash && texts_[static_cast<size_t>(slots_[slot].id)] == text)
        return slots_[slot].id;
    }
    return std::nullopt;
  }
  /// Empty when the id is not in the vocabulary; no token is empty.
  std::string_view text(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    return i < texts_.size() ? texts_[i] : std::string_view();
  }
  size_t num_tokens() const { return num_tokens_; }
  /// One more than the highest id.
  int32_t id_end() const { return static_cast<int32_t>(texts_.size()); }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  static uint32_t hash_of(std::string_view text) {
    return static_cast<uint32_t>(std::hash<std::string_view>()(text));
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::vector<std::string_view> texts_;  // by id
  size_t num_tokens_ = 0;
};

}  // namespace sluice
