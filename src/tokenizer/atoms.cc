#include "tokenizer/atoms.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace sluice {
namespace {

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

bool is_ascii(char byte) {
  return static_cast<uint8_t>(byte) < 0x80;
}

// One or two bytes at an end of a character, as an index.
size_t part_index(std::string_view part) {
  const size_t last = static_cast<uint8_t>(part.back());
  return part.size() == 1 ? last : static_cast<size_t>(static_cast<uint8_t>(part[0])) << 8 | last;
}

// Parts of characters that some merge joins with what is outside the character.
class JoinedParts {
 public:
  void add(std::string_view left, std::string_view right) {
    if (is_continuation(right[0])) return;  // inside a character
    const auto begin = std::ranges::find_if_not(left, is_continuation);
    const auto tail = static_cast<size_t>(begin - left.begin());
    if (tail > 0 && tail <= 2) tails_[part_index(left.substr(0, tail))] = true;
    const size_t cut = truncated_utf8_tail(right);
    if (cut == 0 || cut > 2) return;
    const char before = cut < right.size() ? right[right.size() - cut - 1] : left.back();
    (is_ascii(before) ? heads_after_ascii_ : heads_)[part_index(right.substr(right.size() - cut))] =
        true;
  }

  bool anywhere(std::string_view c) const {
    return any_part(c, [&](std::string_view head, std::string_view tail) {
      return heads_[part_index(head)] || tails_[part_index(tail)];
    });
  }

  bool after_ascii(std::string_view c) const {
    return any_part(c, [&](std::string_view head, std::string_view) {
      return heads_after_ascii_[part_index(head)];
    });
  }

 private:
  using Flags = std::vector<bool>;

  template <typename Test>
  static bool any_part(std::string_view c, const Test& test) {
    for (size_t n = 1; n < c.size(); ++n) {
      if (test(c.substr(0, n), c.substr(c.size() - n))) return true;
    }
    return false;
  }

  Flags heads_ = Flags(0x10000), heads_after_ascii_ = Flags(0x10000), tails_ = Flags(0x10000);
};

struct Merged {
  int32_t id = -1;  // -1: more than one symbol is left
  uint32_t rank_max = 0;
};

Merged merge_all(std::string_view c, const std::vector<int32_t>& byte_ids,
                 const std::vector<Merge>& merges, const PairRanks& ranks) {
  std::array<int32_t, 4> ids{};
  size_t size = 0;
  for (const char byte : c) ids[size++] = byte_ids[static_cast<uint8_t>(byte)];
  Merged merged;
  while (size > 1) {
    size_t at = 0;
    uint32_t best = PairRanks::kNone;
    for (size_t i = 0; i + 1 < size; ++i) {
      const uint32_t rank = ranks.find(ids[i], ids[i + 1]);
      if (rank < best) best = rank, at = i;
    }
    if (best == PairRanks::kNone) return merged;
    ids[at] = merges[best].result;
    std::copy(ids.begin() + at + 2, ids.begin() + size, ids.begin() + at + 1);
    merged.rank_max = std::max(merged.rank_max, best);
    --size;
  }
  merged.id = ids[0];
  return merged;
}

}  // namespace

Atoms::Atoms(const std::vector<Merge>& merges, const std::vector<int32_t>& byte_ids,
             const TokenBytes& tokens, const PairRanks& ranks)
    : entries_(kNumScalars, -1) {
  JoinedParts joined;
  // The lowest rank of a merge that takes the id as it is.
  std::vector<uint32_t> first_use(tokens.size(), PairRanks::kNone);
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    joined.add(tokens[merges[rank].left], tokens[merges[rank].right]);
    for (const int32_t part : {merges[rank].left, merges[rank].right}) {
      first_use[static_cast<size_t>(part)] = std::min(first_use[static_cast<size_t>(part)], rank);
    }
  }
  for (char32_t c = 0x80; c < kNumScalars; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(c, &text);
    const Merged merged = merge_all(text, byte_ids, merges, ranks);
    if (merged.id < 0 || joined.anywhere(text)) continue;
    if (first_use[static_cast<size_t>(merged.id)] <= merged.rank_max) continue;
    entries_[c] = merged.id | (joined.after_ascii(text) ? kNotAfterAscii : 0);
  }
}

}  // namespace sluice
