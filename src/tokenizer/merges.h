#pragma once
// Byte-pair merging: the lowest rank first, the leftmost among equals, until nothing merges.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/atoms.h"
#include "tokenizer/pair_ranks.h"

namespace sluice {

/// Buffers for merging, kept by the caller; `num_steps` counts the symbols and heap levels looked at (for tests).
struct MergeScratch {
  std::vector<int32_t> ids;  // the result
  std::vector<int32_t> symbols;
  std::vector<uint32_t> starts;  // of each of `ids`, in symbols
  struct Run {
    std::vector<int32_t> ids;
    std::vector<uint32_t> starts;
  };
  Run window, seam;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> previous;
  std::vector<uint32_t> next;
  std::vector<uint64_t> heap;
  uint64_t num_steps = 0;
};

class MergeTable {
 public:
  /// `merges` by rank; every pair appears once. `byte_ids` [256]: the id of each byte. `tokens` is read here only: the
  /// bytes of every id, of a result those of its two parts. Pre: as PairRanks.
  MergeTable(const std::vector<Merge>& merges, std::vector<int32_t> byte_ids,
             const TokenBytes& tokens);

  /// Merges the bytes of `chunk` into scratch->ids. Cost: linear; a long chunk is merged window by window. Only where
  /// windows cannot be joined does one grow, to n log n in all.
  void apply(std::string_view chunk, MergeScratch* scratch) const;

 private:
  static constexpr size_t kShort = 48;     // symbols that are searched rather than kept in a heap
  static constexpr size_t kWindow = 1024;  // symbols; the heap's buffers stay in the nearest caches
  static constexpr size_t kUncertain = 2;  // tokens at a window's end that what follows may change

  class Heap;

  void read_symbols(std::string_view chunk, std::vector<int32_t>* symbols) const;
  void read_bytes(std::string_view chunk, std::vector<int32_t>* symbols) const;
  void apply_short(MergeScratch* scratch) const;
  void apply_windows(MergeScratch* scratch) const;
  bool is_seam(size_t begin, size_t middle, size_t end, MergeScratch* scratch) const;

  std::vector<int32_t> byte_ids_;
  PairRanks ranks_;
  Atoms atoms_;
  std::vector<int32_t> results_;  // by rank
};

}  // namespace sluice
