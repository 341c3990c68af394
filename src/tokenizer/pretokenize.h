#pragma once
// The two pre-tokeniser regexes of the family, as hand-written matchers: linear, no backtracking, no stack.

#include <array>
#include <cstddef>
#include <string_view>

#include "tokenizer/unicode.h"

namespace sluice {

enum class PreTokenizerRegex {
  kWithMarks,  // M: combining marks belong to words (the text in tokenizer.json)
  kQwen2,      // Q: combining marks count as punctuation (transformers' Qwen2Tokenizer)
};

inline constexpr std::string_view kWithMarksRegexText =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2RegexText =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  PreTokenizer(PreTokenizerRegex regex, const UnicodeTables& tables);

  /// The end of the chunk that starts at `pos`; chunks cover the text without gaps.
  /// Cost: linear over a whole text (a run of white space is looked at three times at most).
  /// Pre: `text` is valid UTF-8 and pos < text.size() is the end of the chunk before, or 0.
  size_t chunk_end(std::string_view text, size_t pos) const;

 private:
  enum class Kind : uint8_t { kWord, kNumber, kOther, kSpace, kNewline };

  Kind kind_at(std::string_view text, size_t pos, size_t* length) const;
  size_t run_end(std::string_view text, size_t pos, Kind kind) const;
  size_t word_end(std::string_view text, size_t pos) const;
  size_t punctuation_end(std::string_view text, size_t pos) const;
  size_t white_space_end(std::string_view text, size_t pos) const;

  const UnicodeTables* tables_;
  std::array<Kind, 128> ascii_;
  std::array<Kind, 5> by_class_;
};

}  // namespace sluice
