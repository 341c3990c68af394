#include "tokenizer/pretokenize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using Chunks = std::vector<std::string>;

Chunks split(PreTokenizerRegex regex, std::string_view text) {
  const PreTokenizer pre_tokenizer(regex, UnicodeTables::get());
  Chunks chunks;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = pre_tokenizer.chunk_end(text, pos);
    chunks.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return chunks;
}

TEST(PreTokenizer, BothRegexes) {
  const struct {
    std::string_view text;
    Chunks expected;
  } cases[] = {
      {"", {}},
      {"Hello, world!", {"Hello", ",", " world", "!"}},
      {"don't I'LL we'rex 'sa", {"don", "'t", " I", "'LL", " we", "'re", "x", " '", "sa"}},
      {"'\u017Fx", {"'\u017F", "x"}},  // case folding takes the long s
      {"'l 'v' 'rx",
       {"'l", " '", "v", "'", " '",
        "rx"}},  // no contraction: the quote leads a word or is punctuation
      {"12a3", {"1", "2", "a", "3"}},
      {"\u00B2\u2160", {"\u00B2", "\u2160"}},
      {"a  b", {"a", " ", " b"}},
      {"a   ", {"a", "   "}},
      {"a\t\tb", {"a", "\t", "\tb"}},
      {"a  1", {"a", " ", " ", "1"}},
      {"a  !", {"a", " ", " !"}},
      {"a\t!", {"a", "\t", "!"}},  // only a space joins punctuation
      {" \n \n  x", {" \n \n", " ", " x"}},
      {"!\r\n\nx", {"!\r\n\n", "x"}},
      {"\nx", {"\n", "x"}},  // a newline never leads a word
      {"!x!!x", {"!x", "!!", "x"}},
      {"\u00A0x \u3000y", {"\u00A0x", " ", "\u3000y"}},
      {"\u0085\u2028x", {"\u0085", "\u2028x"}},
      {"\u200Bx\u200B\u200Bx", {"\u200Bx", "\u200B\u200B", "x"}},  // not white space
      {"\u180Ex", {"\u180Ex"}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(split(PreTokenizerRegex::kWithMarks, c.text), c.expected) << c.text;
    EXPECT_EQ(split(PreTokenizerRegex::kQwen2, c.text), c.expected) << c.text;
  }
}

TEST(PreTokenizer, MarksTellThemApart) {
  const struct {
    std::string_view text;
    Chunks with_marks;
    Chunks qwen2;
  } cases[] = {
      {"\u0E2A\u0E27\u0E31\u0E2A", {"\u0E2A\u0E27\u0E31\u0E2A"}, {"\u0E2A\u0E27", "\u0E31\u0E2A"}},
      {"\u0301", {"\u0301"}, {"\u0301"}},
      {"!\u0301x", {"!\u0301x"}, {"!\u0301", "x"}},
      {" \u0301x", {" \u0301x"}, {" \u0301", "x"}},
      {"1\u0301", {"1", "\u0301"}, {"1", "\u0301"}},
      {"\u2764\uFE0F!", {"\u2764\uFE0F", "!"}, {"\u2764\uFE0F!"}},
      {"a\u0301\n", {"a\u0301", "\n"}, {"a", "\u0301\n"}},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(split(PreTokenizerRegex::kWithMarks, c.text), c.with_marks) << c.text;
    EXPECT_EQ(split(PreTokenizerRegex::kQwen2, c.text), c.qwen2) << c.text;
  }
}

TEST(PreTokenizer, LongRunsTakeOneLook) {
  const PreTokenizer pre_tokenizer(PreTokenizerRegex::kWithMarks, UnicodeTables::get());
  constexpr size_t kSize = 10'000'000;
  for (const char c : {' ', 'a', '!', '\n', '\t'}) {
    const std::string text(kSize, c);
    EXPECT_EQ(pre_tokenizer.chunk_end(text, 0), kSize) << int{c};
  }
  // Newlines between spaces: looked at once more for what follows the last one.
  std::string text;
  while (text.size() < kSize) text += "   \n";
  text += std::string(kSize, ' ') + "x";
  EXPECT_EQ(split(PreTokenizerRegex::kWithMarks, text).size(), 3u);
}

}  // namespace
}  // namespace sluice
