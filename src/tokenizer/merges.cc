#include "tokenizer/merges.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace sluice {

MergeTable::MergeTable(const std::vector<Merge>& merges, std::vector<int32_t> byte_ids,
                       const TokenBytes& tokens)
    : byte_ids_(std::move(byte_ids)), ranks_(merges), atoms_(merges, byte_ids_, tokens, ranks_) {
  SLUICE_CHECK_EQ(byte_ids_.size(), size_t{256});
  results_.reserve(merges.size());
  for (const Merge& merge : merges) results_.push_back(merge.result);
}

void MergeTable::read_bytes(std::string_view chunk, std::vector<int32_t>* symbols) const {
  symbols->clear();
  for (const char c : chunk) symbols->push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

// Atoms and bytes; bytes alone when the chunk is not valid UTF-8, for which atoms promise nothing.
void MergeTable::read_symbols(std::string_view chunk, std::vector<int32_t>* symbols) const {
  symbols->clear();
  symbols->reserve(chunk.size());
  bool after_ascii = false;
  for (size_t pos = 0; pos < chunk.size();) {
    const auto byte = static_cast<uint8_t>(chunk[pos]);
    if (byte < 0x80) {
      symbols->push_back(byte_ids_[byte]);
      after_ascii = true;
      ++pos;
      continue;
    }
    const Utf8Step step = utf8_step(chunk, pos);
    if (step.kind != Utf8Step::Kind::kScalar) return read_bytes(chunk, symbols);
    const int32_t atom = step.length < 4 ? atoms_.find(step.scalar, after_ascii) : -1;
    if (atom >= 0) {
      symbols->push_back(atom);
    } else {
      for (size_t i = 0; i < step.length; ++i) {
        symbols->push_back(byte_ids_[static_cast<uint8_t>(chunk[pos + i])]);
      }
    }
    after_ascii = false;
    pos += step.length;
  }
}

void MergeTable::apply(std::string_view chunk, MergeScratch* scratch) const {
  read_symbols(chunk, &scratch->ids);
  if (scratch->ids.size() <= kShort) return apply_short(scratch);
  scratch->symbols.swap(scratch->ids);
  apply_windows(scratch);
}

// ranks[i] is the rank of (ids[i], ids[i + 1]).
void MergeTable::apply_short(MergeScratch* scratch) const {
  int32_t* ids = scratch->ids.data();
  size_t size = scratch->ids.size();
  uint32_t ranks[kShort];
  for (size_t i = 0; i + 1 < size; ++i) ranks[i] = ranks_.find(ids[i], ids[i + 1]);
  while (size > 1) {
    scratch->num_steps += size;
    const size_t at = static_cast<size_t>(std::min_element(ranks, ranks + size - 1) - ranks);
    if (ranks[at] == PairRanks::kNone) break;
    ids[at] = results_[ranks[at]];
    std::copy(ids + at + 2, ids + size, ids + at + 1);
    if (at + 2 < size) std::copy(ranks + at + 2, ranks + size - 1, ranks + at + 1);
    --size;
    if (at > 0) ranks[at - 1] = ranks_.find(ids[at - 1], ids[at]);
    if (at + 1 < size) ranks[at] = ranks_.find(ids[at], ids[at + 1]);
  }
  scratch->ids.resize(size);
}

// A linked list of symbols and a heap of (rank, position). An entry is stale when its position's pair has another rank
// by now; ranks name pairs one to one, so an equal rank means the same pair.
class MergeTable::Heap {
 public:
  Heap(const MergeTable& table, std::span<const int32_t> symbols, MergeScratch* scratch,
       MergeScratch::Run* run)
      : table_(table), s_(*scratch), run_(*run), size_(static_cast<uint32_t>(symbols.size())) {
    run_.ids.assign(symbols.begin(), symbols.end());
    s_.ranks.assign(size_, PairRanks::kNone);
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
      s_.num_steps += static_cast<uint64_t>(std::bit_width(s_.heap.size()));
      std::ranges::pop_heap(s_.heap, std::greater<>());
      const uint64_t top = s_.heap.back();
      s_.heap.pop_back();
      merge(static_cast<uint32_t>(top >> 32), static_cast<uint32_t>(top));
    }
  }

  // Leaves the tokens in run->ids and where they start in run->starts.
  void keep_merged() {
    run_.starts.clear();
    for (uint32_t i = 0; i < size_; i = s_.next[i]) {
      run_.ids[run_.starts.size()] = run_.ids[i];
      run_.starts.push_back(i);
    }
    run_.ids.resize(run_.starts.size());
  }

 private:
  uint64_t entry(uint32_t i) const { return uint64_t{s_.ranks[i]} << 32 | i; }

  // Sets the rank of the pair that starts at i; false when nothing merges there.
  bool look_up(uint32_t i) {
    const uint32_t next = s_.next[i];
    s_.ranks[i] = next < size_ ? table_.ranks_.find(run_.ids[i], run_.ids[next]) : PairRanks::kNone;
    return s_.ranks[i] != PairRanks::kNone;
  }

  void update(uint32_t i) {
    if (!look_up(i)) return;
    s_.heap.push_back(entry(i));
    std::ranges::push_heap(s_.heap, std::greater<>());
  }

  void merge(uint32_t rank, uint32_t at) {
    if (s_.ranks[at] != rank) return;
    const uint32_t gone = s_.next[at];
    run_.ids[at] = table_.results_[rank];
    s_.ranks[gone] = PairRanks::kNone;
    s_.next[at] = s_.next[gone];
    if (s_.next[at] < size_) s_.previous[s_.next[at]] = at;
    update(at);
    if (at > 0) update(s_.previous[at]);
  }

  const MergeTable& table_;
  MergeScratch& s_;
  MergeScratch::Run& run_;
  const uint32_t size_;
};

// True when the symbols [begin, end), merged alone, are two tokens that meet at `middle`.
bool MergeTable::is_seam(size_t begin, size_t middle, size_t end, MergeScratch* scratch) const {
  Heap heap(*this, std::span(scratch->symbols).subspan(begin, end - begin), scratch,
            &scratch->seam);
  heap.merge_all();
  heap.keep_merged();
  return scratch->seam.starts.size() == 2 && scratch->seam.starts[1] == middle - begin;
}

// Tokens are the merging of the whole exactly when each two neighbours are the merging of the two together: up to the
// first merge across some boundary, what happens inside the two tokens beside it is what happens when they stand alone.
// Inside one window neighbours are right by the same argument, so only the seams between windows are checked.
void MergeTable::apply_windows(MergeScratch* scratch) const {
  const std::vector<int32_t>& symbols = scratch->symbols;
  MergeScratch::Run& window = scratch->window;
  auto& ids = scratch->ids;
  auto& starts = scratch->starts;
  ids.clear();
  starts.clear();
  starts.reserve(symbols.size());
  size_t width = kWindow;
  size_t num_back = kUncertain;
  for (size_t begin = 0; begin < symbols.size();) {
    const size_t end = std::min(begin + width, symbols.size());
    Heap heap(*this, std::span(symbols).subspan(begin, end - begin), scratch, &window);
    heap.merge_all();
    heap.keep_merged();
    const size_t count = window.ids.size();
    if (end < symbols.size() && count <= kUncertain) {
      width *= 2;
      continue;
    }
    const size_t first_end = count > 1 ? begin + window.starts[1] : end;
    if (!ids.empty() && !is_seam(starts.back(), begin, first_end, scratch)) {
      const size_t kept = ids.size() - std::min(ids.size(), num_back);
      begin = starts[kept];
      ids.resize(kept);
      starts.resize(kept);
      width *= 2;
      num_back *= 2;
      continue;
    }
    const size_t num_certain = end == symbols.size() ? count : count - kUncertain;
    ids.insert(ids.end(), window.ids.begin(),
               window.ids.begin() + static_cast<ptrdiff_t>(num_certain));
    for (size_t i = 0; i < num_certain; ++i)
      starts.push_back(static_cast<uint32_t>(begin) + window.starts[i]);
    begin = num_certain < count ? begin + window.starts[num_certain] : end;
    width = kWindow;
    num_back = kUncertain;
  }
}

}  // namespace sluice
