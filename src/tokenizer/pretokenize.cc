#include "tokenizer/pretokenize.h"

#include <bit>
#include <cstring>

#include "base/utf8.h"

namespace sluice {
namespace {

// 's 't 're 've 'm 'll 'd in any case at text[pos] == '\''; 0 when there is none. Case folding also takes U+017F as s.
size_t contraction_length(std::string_view text, size_t pos) {
  const auto lower = [&](size_t i) -> char {
    if (pos + i >= text.size()) return '\0';
    const char c = text[pos + i];
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (lower(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return 2;
    case 'r':
    case 'v':
      return lower(2) == 'e' ? 3 : 0;
    case 'l':
      return lower(2) == 'l' ? 3 : 0;
    case '\xC5':
      return lower(2) == '\xBF' ? 3 : 0;
    default:
      return 0;
  }
}

bool is_ascii_letter(char c) {
  return static_cast<uint8_t>((c | 0x20) - 'a') < 26;
}

// The high bit of each byte of `word` that is an ASCII letter.
uint64_t letter_bits(uint64_t word) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHigh = 0x80 * kOnes;
  const uint64_t lower = (word | 0x20 * kOnes) & ~kHigh;
  const uint64_t from_a = lower + (0x80 - 'a') * kOnes;
  const uint64_t after_z = lower + (0x80 - ('z' + 1)) * kOnes;
  return from_a & ~after_z & ~word & kHigh;
}

// Most words have less than eight letters: one step and no branch a letter.
size_t skip_ascii_letters(std::string_view text, size_t pos) {
  static_assert(std::endian::native == std::endian::little);
  for (; pos + 8 <= text.size(); pos += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    const uint64_t others = letter_bits(word) ^ 0x8080808080808080;
    if (others != 0) return pos + static_cast<size_t>(std::countr_zero(others)) / 8;
  }
  while (pos < text.size() && is_ascii_letter(text[pos])) ++pos;
  return pos;
}

}  // namespace

PreTokenizer::PreTokenizer(PreTokenizerRegex regex, const UnicodeTables& tables)
    : tables_(&tables) {
  by_class_[static_cast<size_t>(CharClass::kOther)] = Kind::kOther;
  by_class_[static_cast<size_t>(CharClass::kLetter)] = Kind::kWord;
  // M names marks beside letters everywhere but in the optional first character, where a mark changes nothing: it
  // could as well be the first of the run. Q never names them. So a mark is a letter in M and punctuation in Q.
  by_class_[static_cast<size_t>(CharClass::kMark)] =
      regex == PreTokenizerRegex::kWithMarks ? Kind::kWord : Kind::kOther;
  by_class_[static_cast<size_t>(CharClass::kNumber)] = Kind::kNumber;
  by_class_[static_cast<size_t>(CharClass::kSpace)] = Kind::kSpace;
  for (size_t c = 0; c < ascii_.size(); ++c) {
    ascii_[c] = c == '\r' || c == '\n'
                    ? Kind::kNewline
                    : by_class_[static_cast<size_t>(tables.char_class(static_cast<char32_t>(c)))];
  }
}

inline PreTokenizer::Kind PreTokenizer::kind_at(std::string_view text, size_t pos,
                                                size_t* length) const {
  const auto byte = static_cast<unsigned char>(text[pos]);
  if (byte < 0x80) {
    *length = 1;
    return ascii_[byte];
  }
  return by_class_[static_cast<size_t>(
      tables_->char_class(utf8_scalar(text.data() + pos, length)))];
}

inline size_t PreTokenizer::run_end(std::string_view text, size_t pos, Kind kind) const {
  size_t length = 0;
  while (pos < text.size() && kind_at(text, pos, &length) == kind) pos += length;
  return pos;
}

// [^\s\p{L}\p{N}]+[\r\n]*, the first of them already taken
size_t PreTokenizer::punctuation_end(std::string_view text, size_t pos) const {
  return run_end(text, run_end(text, pos, Kind::kOther), Kind::kNewline);
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t PreTokenizer::white_space_end(std::string_view text, size_t pos) const {
  size_t end = pos;
  size_t last = pos;           // start of the last character of the run
  size_t after_newline = pos;  // end of its last newline
  size_t length = 0;
  while (end < text.size()) {
    const Kind kind = kind_at(text, end, &length);
    if (kind != Kind::kSpace && kind != Kind::kNewline) break;
    last = end;
    end += length;
    if (kind == Kind::kNewline) after_newline = end;
  }
  if (after_newline > pos) return after_newline;
  // Before something else the run leaves its last character to it, unless that is all there is.
  return end == text.size() || last == pos ? end : last;
}

inline size_t PreTokenizer::word_end(std::string_view text, size_t pos) const {
  pos = skip_ascii_letters(text, pos);
  const bool may_go_on = pos < text.size() && static_cast<uint8_t>(text[pos]) >= 0x80;
  return may_go_on ? run_end(text, pos, Kind::kWord) : pos;
}

size_t PreTokenizer::chunk_end(std::string_view text, size_t pos) const {
  const size_t first = pos + (text[pos] == ' ' ? 1 : 0);
  if (first < text.size() && is_ascii_letter(text[first])) return word_end(text, first + 1);
  size_t length = 0;
  const Kind kind = kind_at(text, pos, &length);
  const size_t next = pos + length;
  switch (kind) {
    case Kind::kWord:
      return word_end(text, next);
    case Kind::kNumber:
      return next;
    case Kind::kNewline:
      return white_space_end(text, pos);
    case Kind::kOther:
      if (text[pos] == '\'') {
        if (const size_t taken = contraction_length(text, pos); taken > 0) return pos + taken;
      }
      break;
    case Kind::kSpace:
      break;
  }
  const Kind next_kind = next < text.size() ? kind_at(text, next, &length) : Kind::kNewline;
  if (next_kind == Kind::kWord) return word_end(text, next + length);
  if (kind == Kind::kOther) return punctuation_end(text, next);
  if (text[pos] == ' ' && next_kind == Kind::kOther) return punctuation_end(text, next + length);
  return white_space_end(text, pos);
}

}  // namespace sluice
