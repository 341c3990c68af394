#pragma once
// Whole chunks whose ids are known: those that merge into one token (all threads share them, built at load), and a
// small cache of recent others (one a thread). Both hold results of merging only: there is no ignore_merges, a chunk
// equal to a vocabulary entry is what its merges make of it.

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/huge_pages.h"

namespace sluice {

/// A chunk's bytes as one number: exact for up to 8 bytes, else a hash.
struct ChunkKey {
  uint64_t value;
  uint64_t hash;
};

/// `readable` is how many bytes may be read from chunk.data(), at least chunk.size().
inline ChunkKey chunk_key(std::string_view chunk, size_t readable) {
  constexpr uint64_t kMix = 0x9E3779B97F4A7C15;
  uint64_t value = 0;
  if (chunk.size() <= 8) {
    if (readable >= 8) {
      std::memcpy(&value, chunk.data(), 8);
      value &= ~uint64_t{0} >> (64 - 8 * chunk.size());
    } else {
      std::memcpy(&value, chunk.data(), chunk.size());
    }
  } else {
    const auto word = [&](size_t pos) {
      uint64_t w;
      std::memcpy(&w, chunk.data() + pos, 8);
      return w;
    };
    value = chunk.size() * kMix;
    for (size_t pos = 0; pos + 8 < chunk.size(); pos += 8) {
      value = (value ^ word(pos)) * kMix;
      value ^= value >> 29;
    }
    // The last word overlaps the one before unless 8 divides the size.
    value = (value ^ word(chunk.size() - 8)) * kMix;
    value ^= value >> 29;
  }
  uint64_t hash = (value ^ chunk.size() << 56) * kMix;
  return {value, hash ^ hash >> 32};
}

class ChunkTable {
 public:
  /// Room for `num_chunks`; forgets what was there.
  void reserve(size_t num_chunks);
  void insert(std::string_view chunk, int32_t id);
  void prefetch(const ChunkKey& key) const { __builtin_prefetch(&slots_[key.hash & mask_]); }
  /// The single id that `chunk` merges into, or -1. `bytes_of(id)` gives a token's bytes.
  template <typename BytesOf>
  int32_t find(std::string_view chunk, const ChunkKey& key, const BytesOf& bytes_of) const {
    for (size_t slot = key.hash & mask_;; slot = (slot + 1) & mask_) {
      const Slot& s = slots_[slot];
      if (s.id < 0) return -1;
      if (s.key != key.value || s.length != chunk.size()) continue;
      if (chunk.size() <= 8 || bytes_of(s.id) == chunk) return s.id;
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t id = -1;
    uint32_t length = 0;
  };
  HugeVector<Slot> slots_;
  size_t mask_ = 0;
};

/// Direct-mapped; an entry gives way to the next chunk of its slot, so hostile text costs misses and nothing more.
class ChunkCache {
 public:
  void clear();
  /// Empty when the chunk is not there.
  std::span<const int32_t> find(std::string_view chunk, uint64_t hash) const {
    const Entry& e = entries_[hash % kNumEntries];
    if (e.length != chunk.size() || std::memcmp(e.bytes, chunk.data(), e.length) != 0) return {};
    return {e.ids, e.num_ids};
  }
  void insert(std::string_view chunk, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t kNumEntries = 8192;
  static constexpr size_t kBytesMax = 38;
  static constexpr size_t kIdsMax = 6;
  struct Entry {
    int32_t ids[kIdsMax];
    char bytes[kBytesMax];
    uint8_t length = 0;
    uint8_t num_ids = 0;
  };
  static_assert(sizeof(Entry) == 64, "one cache line");
  std::vector<Entry> entries_;
};

}  // namespace sluice
