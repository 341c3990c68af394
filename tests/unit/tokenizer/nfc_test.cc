#include "tokenizer/nfc.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace sluice {
namespace {

std::string nfc_of(std::string_view text) {
  static NfcScratch scratch;
  return std::string(nfc(UnicodeTables::get(), text, &scratch));
}

std::string utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) append_utf8(c, &out);
  return out;
}

TEST(Nfc, Table) {
  const struct {
    std::u32string_view text;
    std::u32string_view expected;
    const char* why;
  } cases[] = {
      {U"e\u0301", U"\u00E9", "composes"},
      {U"xe\u0301y", U"x\u00E9y", "in the middle"},
      {U"\u0301", U"\u0301", "a mark without a base"},
      {U"\u0301\u0323", U"\u0323\u0301", "reorders without a base"},
      {U"a\u0301\u0323", U"\u1EA1\u0301", "reorders, then composes the lower"},
      {U"a\u0323\u0301", U"\u1EA1\u0301", "canonically equal to the one before"},
      {U"\u00E9\u0327", U"\u0229\u0301", "a composed letter takes part"},
      {U"e\u0327\u0301", U"\u0229\u0301", "the same from parts"},
      {U"a\u0345\u0301", U"\u00E1\u0345", "two classes"},
      {U"e\u0301\u0301", U"\u00E9\u0301", "only one of two equal marks"},
      {U"e\u034F\u0301", U"e\u034F\u0301", "U+034F is a starter and blocks"},
      {U"\u212B", U"\u00C5", "a singleton"},
      {U"\u0344", U"\u0308\u0301", "decomposes and does not come back"},
      {U"\u0958", U"\u0915\u093C", "an excluded composite"},
      {U"\u0915\u093C", U"\u0915\u093C", "nor is it composed"},
      {U"\u09C7\u09BE", U"\u09CB", "two starters compose"},
      {U"\u09C7\u0301\u09BE", U"\u09C7\u0301\u09BE", "but not across a mark"},
      {U"\u1100\u1161", U"\uAC00", "Hangul L V"},
      {U"\u1100\u1161\u11A8", U"\uAC01", "Hangul L V T"},
      {U"\uAC00\u11A8", U"\uAC01", "Hangul LV T"},
      {U"\uAC01\u11A8", U"\uAC01\u11A8", "Hangul LVT T"},
      {U"\uAC00\u11A7", U"\uAC00\u11A7", "T base is no T"},
      {U"\u1100\u1100\u1161", U"\u1100\uAC00", "Hangul L L V"},
      {U"\U0001D15E", U"\U0001D157\U0001D165", "beyond the BMP"},
      {U"\U00011935\U00011930", U"\U00011935\U00011930",
       "Unicode 13's composite: the reference has 9.0"},
      {U"\U00011938", U"\U00011938", "and does not decompose it"},
      {U"\u08D3\u0301", U"\u08D3\u0301", "a mark of Unicode 11 has no class there"},
      {U"\u0301\u08D3", U"\u0301\u08D3", "so that neither order changes"},
      {U"", U"", "empty"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(nfc_of(utf8(c.text)), utf8(c.expected)) << c.why;
    EXPECT_EQ(nfc_of(utf8(c.expected)), utf8(c.expected)) << c.why << ", again";
  }
}

TEST(Nfc, InertTextIsNotCopied) {
  NfcScratch scratch;
  for (const std::string_view text : {"plain", "caf\u00E9 \u4F60\u597D \uAC00", ""}) {
    EXPECT_EQ(nfc(UnicodeTables::get(), text, &scratch).data(), text.data());
  }
}

TEST(Nfc, MarksOfOneClassKeepTheirOrder) {
  // q composes with nothing.
  const std::pair<char32_t, int> marks[] = {{U'\u0301', 230}, {U'\u0300', 230}, {U'\u0323', 220},
                                            {U'\u0331', 220}, {U'\u0327', 202}, {U'\u0345', 240}};
  std::mt19937 rng(3);
  for (const size_t length : {2, 10, 63, 64, 65, 66, 1000}) {
    std::vector<std::pair<char32_t, int>> run;
    for (size_t i = 0; i < length; ++i) run.push_back(marks[rng() % std::size(marks)]);
    std::u32string text = U"q", expected = U"q";
    for (const auto& mark : run) text.push_back(mark.first);
    std::ranges::stable_sort(run, {}, &std::pair<char32_t, int>::second);
    for (const auto& mark : run) expected.push_back(mark.first);
    EXPECT_EQ(nfc_of(utf8(text)), utf8(expected)) << length;
  }
}

TEST(Nfc, ALongRunOfMarksIsSorted) {
  // Ten million bytes of alternating classes 230 and 220: insertion would be quadratic and not end.
  std::string text = "a", below, above;
  for (int i = 0; i < 2'500'000; ++i) {
    text += "\u0301\u0323";
    above += "\u0301";
    below += "\u0323";
  }
  const std::string expected = "\u1EA1" + below.substr(2) + above;
  EXPECT_TRUE(nfc_of(text) == expected);
}

}  // namespace
}  // namespace sluice
