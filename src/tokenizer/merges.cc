#include "tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/check.h"

namespace sluice {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t hash_slot(uint64_t key, int shift) {
  key ^= key >> 32;
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15) >> shift);
}

}  // namespace

MergeTable::MergeTable(std::vector<Merge> merges) : merges_(std::move(merges)) {
  const size_t size = std::bit_ceil(std::max<size_t>(merges_.size() * 2, 16));
  shift_ = 64 - std::countr_zero(size);
  slots_.assign(size, {kNoPair, kNoRank});
  for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
    const uint64_t key = pair_key(merges_[rank].left, merges_[rank].right);
    size_t slot = hash_slot(key, shift_);
    while (slots_[slot].pair != kNoPair) {
      SLUICE_CHECK_NE(slots_[slot].pair, key);
      slot = (slot + 1) & (size - 1);
    }
    slots_[slot] = {key, rank};
  }
}

inline uint32_t MergeTable::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t slot = hash_slot(key, shift_);; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == key) return slots_[slot].rank;
    if (slots_[slot].pair == kNoPair) return kNoRank;
  }
}

void MergeTable::apply(MergeScratch* scratch) const {
  if (scratch->ids.size() < 2) return;
  if (scratch->ids.size() <= kShort) return apply_short(scratch);
  apply_long(scratch);
}

// ranks[i] is the rank of (ids[i], ids[i + 1]).
void MergeTable::apply_short(MergeScratch* scratch) const {
  int32_t* ids = scratch->ids.data();
  size_t size = scratch->ids.size();
  uint32_t ranks[kShort];
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = rank_of(ids[i], ids[i + 1]);
  while (size > 1) {
    scratch->num_steps += size;
    const size_t at = static_cast<size_t>(std::min_element(ranks, ranks + size - 1) - ranks);
    if (ranks[at] == kNoRank) break;
    ids[at] = merges_[ranks[at]].result;
    std::copy(ids + at + 2, ids + size, ids + at + 1);
    if (at + 2 < size) std::copy(ranks + at + 2, ranks + size - 1, ranks + at + 1);
    --size;
    if (at > 0) ranks[at - 1] = rank_of(ids[at - 1], ids[at]);
    if (at + 1 < size) ranks[at] = rank_of(ids[at], ids[at + 1]);
  }
  scratch->ids.resize(size);
}

// A linked list of symbols and a heap of (rank, position). An entry is stale when its position's pair has another rank
// by now; ranks name pairs one to one, so an equal rank means the same pair.
void MergeTable::apply_long(MergeScratch* scratch) const {
  auto& [ids, ranks, previous, next, heap, num_steps] = *scratch;
  const auto size = static_cast<uint32_t>(ids.size());
  ranks.assign(size, kNoRank);
  previous.resize(size);
  next.resize(size);
  heap.clear();
  const auto entry = [&](uint32_t i) { return uint64_t{ranks[i]} << 32 | i; };
  for (uint32_t i = 0; i < size; ++i) {
    previous[i] = i - 1;  // of the first: never read, since a check on i == 0 stands before
    next[i] = i + 1;
    if (i + 1 < size) ranks[i] = rank_of(ids[i], ids[i + 1]);
    if (ranks[i] != kNoRank) heap.push_back(entry(i));
  }
  std::ranges::make_heap(heap, std::greater<>());
  const auto update = [&](uint32_t i) {
    ranks[i] = next[i] < size ? rank_of(ids[i], ids[next[i]]) : kNoRank;
    if (ranks[i] == kNoRank) return;
    heap.push_back(entry(i));
    std::ranges::push_heap(heap, std::greater<>());
  };
  num_steps += size;
  while (!heap.empty()) {
    ++num_steps;
    std::ranges::pop_heap(heap, std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (ranks[at] != rank) continue;
    const uint32_t gone = next[at];
    ids[at] = merges_[rank].result;
    ranks[gone] = kNoRank;
    next[at] = next[gone];
    if (next[at] < size) previous[next[at]] = at;
    update(at);
    if (at > 0) update(previous[at]);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i < size; i = next[i]) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace sluice
