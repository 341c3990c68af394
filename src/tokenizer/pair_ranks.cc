#include "tokenizer/pair_ranks.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace sluice {
namespace {

constexpr int kFilterBits = 2;  // 4 bits a slot, 8 or more a merge

}  // namespace

PairRanks::PairRanks(const std::vector<Merge>& merges) {
  SLUICE_CHECK_LE(merges.size(), kNumMergesMax);
  const size_t size = std::bit_ceil(std::max<size_t>(merges.size() * 2, 64));
  shift_ = 64 - std::countr_zero(size);
  slots_.assign(size, kEmpty);
  filter_shift_ = shift_ - kFilterBits;
  filter_.assign((size << kFilterBits) / 64, 0);
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right, result] = merges[rank];
    SLUICE_CHECK(left >= 0 && left < kIdMax && right >= 0 && right < kIdMax && result >= 0);
    const uint64_t pair = pair_bits(left, right);
    const uint64_t hash = hash_of(pair);
    filter_[(hash >> filter_shift_) / 64] |= uint64_t{1} << (hash >> filter_shift_) % 64;
    size_t slot = first_slot(hash);
    while (slots_[slot] != kEmpty) {
      SLUICE_CHECK_NE(slots_[slot] & ~uint64_t{kNone}, pair);
      slot = (slot + 1) & (size - 1);
    }
    slots_[slot] = pair | rank;
  }
}

}  // namespace sluice
