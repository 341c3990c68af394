#pragma once
// Character classes and canonical (de)composition as the reference tokenizer has them: Oniguruma's classes (Unicode
// 16.0) beside NFC data of Unicode 9.0. The data is read off the reference by tools/unicode/generate_tables.py.

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

class UnicodeTables {
 public:
  /// Built once a process (about 1 MB); keep the reference rather than calling this for each character.
  static const UnicodeTables& get();

  // Pre (all of these): the argument is at most U+10FFFF.
  CharClass char_class(char32_t c) const { return static_cast<CharClass>(flags_[c] & kClassMask); }
  /// False when NFC neither changes `c` nor lets anything before `c` change with it: a safe place to break.
  bool is_nfc_active(char32_t c) const { return (flags_[c] & kActive) != 0; }
  uint8_t combining_class(char32_t c) const;
  /// The full canonical decomposition; empty when there is none. Hangul syllables are not in it.
  std::span<const char32_t> decomposition(char32_t c) const;
  /// The primary composite of a pair, or 0. Hangul is not in it.
  char32_t composition(char32_t first, char32_t second) const;

 private:
  UnicodeTables();
  static constexpr uint8_t kClassMask = 0x7;
  static constexpr uint8_t kActive = 0x80;
  std::vector<uint8_t> flags_;  // [0x110000]
};

}  // namespace sluice
