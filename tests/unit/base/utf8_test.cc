#include "base/utf8.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string lossy(std::string_view text) {
  std::string out;
  append_lossy_utf8(text, &out);
  return out;
}

TEST(Utf8, LossyFollowsTheMaximalSubpartRule) {
  const struct {
    std::string_view bytes;
    int num_replaced;  // and nothing else remains
  } cases[] = {
      {"\x80", 1},          // a continuation byte alone
      {"\xC0\x80", 2},      // overlong: C0 starts nothing
      {"\xC3", 1},          // the end inside a pair
      {"\xE0\x80\x80", 3},  // overlong of three: E0 wants A0..BF next
      {"\xE2\x82", 1},      // a truncated triple is one
      {"\xE2\x82\xE2\x82", 2},
      {"\xED\xA0\x80", 3},  // a surrogate
      {"\xF0\x9F\x9A", 1},  // a truncated emoji is one
      {"\xF0\x80\x80\x80", 4},
      {"\xF4\x90\x80\x80", 4},  // above U+10FFFF
      {"\xF5\x80", 2},
      {"\xFF\xFE", 2},
  };
  for (const auto& c : cases) {
    std::string expected;
    for (int i = 0; i < c.num_replaced; ++i) expected += kReplacementCharacter;
    EXPECT_EQ(lossy(c.bytes), expected) << testing::PrintToString(c.bytes);
    EXPECT_EQ(lossy(fmt::format("a{}b", c.bytes)), fmt::format("a{}b", expected));
    EXPECT_FALSE(is_valid_utf8(c.bytes));
    EXPECT_FALSE(is_valid_utf8(fmt::format("0123456789{}0123456789", c.bytes)));
  }
}

TEST(Utf8, EveryScalarValueSurvives) {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) append_utf8(c, &all);
  }
  EXPECT_TRUE(is_valid_utf8(all));
  EXPECT_EQ(lossy(all), all);
  char32_t expected = 0;
  size_t length = 0;
  for (size_t pos = 0; pos < all.size(); pos += length) {
    ASSERT_EQ(utf8_scalar(all.data() + pos, &length), expected);
    ++expected;
    if (expected == 0xD800) expected = 0xE000;
  }
}

TEST(Utf8, TruncatedTail) {
  const struct {
    std::string_view bytes;
    size_t length;
  } cases[] = {{"", 0},
               {"a", 0},
               {"\xC3", 1},
               {"\xC3\xA9", 0},
               {"\xE2\x82", 2},
               {"\xF0\x9F\x9A", 3},
               {"\xF0\x9F\x9A\x80", 0},
               {"\x80\x80\x80\x80", 0},
               {"\xED\xA0", 0},
               {"\xED", 1},
               {"\xE2\x82\x41", 0},
               {"\xF4\x90", 0},
               {"\xFF", 0},
               {"\xC0", 0},
               {"\xF0\x9F\xE2", 1}};
  for (const auto& c : cases) {
    EXPECT_EQ(truncated_utf8_tail(c.bytes), c.length) << testing::PrintToString(c.bytes);
    EXPECT_EQ(truncated_utf8_tail(fmt::format("ab{}", c.bytes)), c.length);
  }
}

TEST(Utf8, SkipAscii) {
  for (size_t at = 0; at < 20; ++at) {
    std::string text(20, 'x');
    text[at] = '\x80';
    EXPECT_EQ(skip_ascii(text, 0), at);
    EXPECT_EQ(skip_ascii(text, at + 1), 20u);
  }
}

}  // namespace
}  // namespace sluice
