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

MergeTable::MergeTable(std::vector<Merge> merges, std::vector<int32_t> byte_ids)
    : merges_(std::move(merges)), byte_ids_(std::move(byte_ids)), byte_pair_ranks_(256 * 256) {
  SLUICE_CHECK_EQ(byte_ids_.size(), size_t{256});
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
  for (size_t pair = 0; pair < byte_pair_ranks_.size(); ++pair) {
    byte_pair_ranks_[pair] = rank_of(byte_ids_[pair / 256], byte_ids_[pair % 256]);
  }
}

inline uint32_t MergeTable::rank_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t slot = hash_slot(key, shift_);; slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == key) return slots_[slot].rank;
    if (slots_[slot].pair == kNoPair) return kNoRank;
  }
}

void MergeTable::apply(std::string_view chunk, MergeScratch* scratch) const {
  scratch->ids.clear();
  for (const char c : chunk) scratch->ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  if (chunk.size() < 2) return;
  if (chunk.size() <= kShort) return apply_short(chunk, scratch);
  apply_long(scratch);
}

// ranks[i] is the rank of (ids[i], ids[i + 1]).
void MergeTable::apply_short(std::string_view chunk, MergeScratch* scratch) const {
  int32_t* ids = scratch->ids.data();
  size_t size = chunk.size();
  uint32_t ranks[kShort];
  for (size_t i = 0; i + 1 < size; ++i) {
    ranks[i] = byte_pair_ranks_[static_cast<uint8_t>(chunk[i]) * size_t{256} +
                                static_cast<uint8_t>(chunk[i + 1])];
  }
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
class MergeTable::Heap {
 public:
  Heap(const MergeTable& table, MergeScratch* scratch)
      : table_(table), s_(*scratch), size_(static_cast<uint32_t>(scratch->ids.size())) {
    s_.ranks.assign(size_, kNoRank);
    s_.previous.resize(size_);
    s_.next.resize(size_);
    s_.heap.clear();
    for (uint32_t i = 0; i < size_; ++i) {
      s_.previous[i] = i - 1;  // the first's is never read
      s_.next[i] = i + 1;
      if (look_up(i)) s_.heap.push_back(entry(i));
    }
    std::ranges::make_heap(s_.heap, std::greater<>());
    s_.num_steps += size_;
  }

  void merge_all() {
    while (!s_.heap.empty()) {
      ++s_.num_steps;
      std::ranges::pop_heap(s_.heap, std::greater<>());
      const uint64_t top = s_.heap.back();
      s_.heap.pop_back();
      merge(static_cast<uint32_t>(top >> 32), static_cast<uint32_t>(top));
    }
  }

  void keep_merged() {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < size_; i = s_.next[i]) s_.ids[kept++] = s_.ids[i];
    s_.ids.resize(kept);
  }

 private:
  uint64_t entry(uint32_t i) const { return uint64_t{s_.ranks[i]} << 32 | i; }

  // Sets the rank of the pair that starts at i; false when nothing merges there.
  bool look_up(uint32_t i) {
    const uint32_t next = s_.next[i];
    s_.ranks[i] = next < size_ ? table_.rank_of(s_.ids[i], s_.ids[next]) : kNoRank;
    return s_.ranks[i] != kNoRank;
  }

  void update(uint32_t i) {
    if (!look_up(i)) return;
    s_.heap.push_back(entry(i));
    std::ranges::push_heap(s_.heap, std::greater<>());
  }

  void merge(uint32_t rank, uint32_t at) {
    if (s_.ranks[at] != rank) return;
    const uint32_t gone = s_.next[at];
    s_.ids[at] = table_.merges_[rank].result;
    s_.ranks[gone] = kNoRank;
    s_.next[at] = s_.next[gone];
    if (s_.next[at] < size_) s_.previous[s_.next[at]] = at;
    update(at);
    if (at > 0) update(s_.previous[at]);
  }

  const MergeTable& table_;
  MergeScratch& s_;
  const uint32_t size_;
};

void MergeTable::apply_long(MergeScratch* scratch) const {
  Heap heap(*this, scratch);
  heap.merge_all();
  heap.keep_merged();
}

}  // namespace sluice
