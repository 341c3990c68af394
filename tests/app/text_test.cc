#include "apps/tools/text.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Text, WhatIsText) {
  EXPECT_TRUE(is_text(""));
  EXPECT_TRUE(is_text("h\xc3\xa9\n"));
  EXPECT_FALSE(is_text(std::string_view("a\0", 2)));
  EXPECT_FALSE(is_text("\xc3"));
  EXPECT_FALSE(is_text("\xed\xa0\x80"));  // a surrogate
}

TEST(Text, CutsEndOnACodePoint) {
  const std::string_view text = "a\xf0\x9f\x9a\x80z";
  EXPECT_EQ(cut_text(text, 0), "");
  EXPECT_EQ(cut_text(text, 1), "a");
  EXPECT_EQ(cut_text(text, 4), "a");
  EXPECT_EQ(cut_text(text, 5), "a\xf0\x9f\x9a\x80");
  EXPECT_EQ(cut_text(text, 99), text);
}

TEST(Text, NothingReachesTheTerminalAsAnOrder) {
  EXPECT_EQ(printable_text("a\x1b[2Jb\r\n\tc\x7f\xc2\x9b"
                           "31m"),
            "a[2Jb\n\tc31m");
  EXPECT_EQ(printable_text("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(printable_text("a\xe2\x80\xae"
                           "b\xe2\x81\xa6"
                           "c"),
            "abc")
      << "right-to-left override, isolate";
  EXPECT_EQ(printable_line("a\nb\x1b\xe2\x80\xa8"), "a?b??");
}

}  // namespace
}  // namespace sluice
