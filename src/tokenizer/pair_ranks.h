#pragma once
// Merges as data, and the rank of a pair of ids.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenizer/huge_pages.h"

namespace sluice {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

/// Pair -> rank, in 8 bytes a slot: two lookups in three miss the nearest caches with a large vocabulary.
class PairRanks {
 public:
  static constexpr uint32_t kNone = (uint32_t{1} << 22) - 1;
  /// Limits of a slot's three fields.
  static constexpr int32_t kIdMax = (int32_t{1} << 21) - 1;
  static constexpr size_t kNumMergesMax = kNone;

  /// `merges` by rank; every pair appears once. Pre: ids are 0..kIdMax, at most kNumMergesMax merges.
  explicit PairRanks(const std::vector<Merge>& merges);

  /// kNone when the pair does not merge.
  uint32_t find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_bits(left, right);
    const uint64_t hash = hash_of(pair);
    if (!may_hold(hash)) return kNone;
    for (size_t slot = first_slot(hash);; slot = (slot + 1) & (slots_.size() - 1)) {
      const uint64_t found = slots_[slot];
      if ((found & ~uint64_t{kNone}) == pair) return static_cast<uint32_t>(found & kNone);
      if (found == kEmpty) return kNone;
    }
  }

 private:
  // left 21 bits, right 21 bits, rank 22 bits. A pair of two kIdMax with rank kNone is none.
  static constexpr uint64_t kEmpty = UINT64_MAX;
  static uint64_t pair_bits(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 43 | static_cast<uint64_t>(right) << 22;
  }
  static uint64_t hash_of(uint64_t pair) { return (pair ^ pair >> 31) * 0x9E3779B97F4A7C15; }
  size_t first_slot(uint64_t hash) const { return static_cast<size_t>(hash >> shift_); }
  bool may_hold(uint64_t hash) const {
    const uint64_t bit = hash >> filter_shift_;
    return (filter_[bit / 64] >> (bit % 64) & 1) != 0;
  }

  // Most pairs that are asked for do not merge: one bit in eight is set, and all of them stay in the second cache.
  std::vector<uint64_t> filter_;
  int filter_shift_ = 0;
  HugeVector<uint64_t> slots_;  // open addressing, at most half full
  int shift_ = 0;
};

}  // namespace sluice
