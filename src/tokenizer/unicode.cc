#include "tokenizer/unicode.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice {
namespace {

constexpr size_t kNumCodePoints = 0x110000;

struct ClassRange {
  char32_t first;
  char32_t last;
  uint8_t value;
};
struct Decomposition {
  char32_t scalar;
  uint16_t offset;
  uint8_t length;
};
struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};
#include "tokenizer/unicode_data.inc"

}  // namespace

const UnicodeTables& UnicodeTables::get() {
  static const UnicodeTables tables;
  return tables;
}

UnicodeTables::UnicodeTables() : flags_(kNumCodePoints) {
  for (const ClassRange& range : kClassRanges) {
    for (char32_t c = range.first; c <= range.last; ++c) flags_[c] = range.value;
  }
  for (const ClassRange& range : kActiveRanges) {
    for (char32_t c = range.first; c <= range.last; ++c) flags_[c] |= kActive;
  }
}

uint8_t UnicodeTables::combining_class(char32_t c) const {
  if (!is_nfc_active(c)) return 0;
  const auto* range = std::ranges::lower_bound(kCombiningRanges, c, {}, &ClassRange::last);
  return range != std::end(kCombiningRanges) && range->first <= c ? range->value : 0;
}

std::span<const char32_t> UnicodeTables::decomposition(char32_t c) const {
  const auto* found = std::ranges::lower_bound(kDecompositions, c, {}, &Decomposition::scalar);
  if (found == std::end(kDecompositions) || found->scalar != c) return {};
  return {kDecompositionPool + found->offset, found->length};
}

char32_t UnicodeTables::composition(char32_t first, char32_t second) const {
  const auto key = [](const Composition& c) { return std::pair(c.first, c.second); };
  const auto* found = std::ranges::lower_bound(kCompositions, std::pair(first, second), {}, key);
  if (found == std::end(kCompositions) || key(*found) != std::pair(first, second)) return 0;
  return found->composed;
}

}  // namespace sluice
