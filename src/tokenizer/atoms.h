#pragma once
// Characters that merging may take as one symbol from the start instead of byte by byte: the same ids, with a third of
// the steps for Chinese.

#include <cstdint>
#include <vector>

#include "tokenizer/pair_ranks.h"
#include "tokenizer/token_bytes.h"

namespace sluice {

/// A character c whose bytes merge into one id is an atom when, in valid UTF-8,
///   1. no merge joins a part of c with anything outside c, and
///   2. every merge of the whole c with something has a higher rank than all merges inside c.
/// Then merging c first changes nothing. By 1 the merges inside c need only c's bytes, and whatever takes c takes it
/// whole. By 2, while c is not whole yet, its next inner merge comes before any merge that c would take part in, so no
/// other merge could have been chosen differently had c been whole.
/// Some characters fail 1 only behind ASCII (" \xE2\x80" is a token): they are atoms elsewhere.
class Atoms {
 public:
  /// `byte_ids` [256]. `tokens`: the bytes of every id in `merges`; of a result, those of its two parts.
  Atoms(const std::vector<Merge>& merges, const std::vector<int32_t>& byte_ids,
        const TokenBytes& tokens, const PairRanks& ranks);

  /// The id of the atom `c`, or -1. `after_ascii`: the byte before it is ASCII. Pre: c <= U+FFFF.
  int32_t find(char32_t c, bool after_ascii) const {
    const int32_t entry = entries_[c];
    if (entry < 0 || (after_ascii && (entry & kNotAfterAscii) != 0)) return -1;
    return entry & ~kNotAfterAscii;
  }

 private:
  static constexpr int32_t kNotAfterAscii = 1 << 30;
  static constexpr size_t kNumScalars = 0x10000;  // of up to three bytes

  std::vector<int32_t> entries_;  // by scalar: id, kNotAfterAscii set or not; -1: no atom
};

}  // namespace sluice
