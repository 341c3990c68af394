#include "tokenizer/pretokenize.h"

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

size_t PreTokenizer::chunk_end(std::string_view text, size_t pos) const {
  size_t length = 0;
  const Kind kind = kind_at(text, pos, &length);
  const size_t next = pos + length;
  switch (kind) {
    case Kind::kWord:
      return run_end(text, next, Kind::kWord);
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
  if (next_kind == Kind::kWord) return run_end(text, next + length, Kind::kWord);
  if (kind == Kind::kOther) return punctuation_end(text, next);
  if (text[pos] == ' ' && next_kind == Kind::kOther) return punctuation_end(text, next + length);
  return white_space_end(text, pos);
}

}  // namespace sluice
