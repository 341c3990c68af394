#pragma once
// Byte-pair merging: the lowest rank first, the leftmost among equals, until nothing merges.

#include <cstdint>
#include <string_view>
#include <vector>

namespace sluice {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
};

/// Buffers for merging, kept by the caller; `num_steps` counts the symbols and heap entries looked at (for tests).
struct MergeScratch {
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> heap;
  uint64_t num_steps = 0;
};

class MergeTable {
 public:
  /// `merges` by rank; every pair appears once. `byte_ids` [256]: the id of each byte. Pre: ids are >= 0.
  MergeTable(std::vector<Merge> merges, std::vector<int32_t> byte_ids);

  /// Merges the bytes of `chunk` into scratch->ids. Cost: n log n; a short sequence is searched instead, at most kShort^2 steps.
  void apply(std::string_view chunk, MergeScratch* scratch) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr size_t kShort = 48;

  class Heap;

  uint32_t rank_of(int32_t left, int32_t right) const;
  void apply_short(std::string_view chunk, MergeScratch* scratch) const;
  void apply_long(MergeScratch* scratch) const;

  struct Slot {
    uint64_t pair;
    uint32_t rank;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;

  std::vector<Merge> merges_;
  std::vector<int32_t> byte_ids_;
  // [256 * 256], so that a chunk's first look stays in the cache.
  std::vector<uint32_t> byte_pair_ranks_;
  std::vector<Slot> slots_;  // open addressing, at most half full
  int shift_ = 0;
};

}  // namespace sluice
