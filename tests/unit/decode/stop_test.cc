#include "decode/stop.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Feeds `text` in pieces of `size` bytes.
Outcome run(const std::vector<std::string>& stops, std::string_view text, size_t size) {
  StopStringMatcher matcher = *StopStringMatcher::create(stops);
  Outcome outcome;
  for (size_t i = 0; i < text.size() && !outcome.stopped; i += size) {
    outcome.stopped = matcher.push(text.substr(i, size), &outcome.text);
  }
  if (!outcome.stopped) matcher.finish(&outcome.text);
  return outcome;
}

TEST(StopString, EveryCutGivesTheSameText) {
  struct Case {
    std::vector<std::string> stops;
    std::string text;
    Outcome expected;
  };
  const Case cases[] = {
      {{"END"}, "one END two", {"one ", true}},
      {{"END"}, "one EN two E", {"one EN two E", false}},
      {{"aab"}, "aaaab", {"aa", true}},
      {{"\n\n", "\nUser:"}, "x\nUser: y\n\n", {"x", true}},
      {{"bcd", "ab"}, "abcd", {"", true}},
      {{"€"}, "5 €", {"5 ", true}},
      {{}, "all of it", {"all of it", false}},
  };
  for (const Case& c : cases) {
    for (size_t size = 1; size <= c.text.size(); ++size) {
      EXPECT_EQ(run(c.stops, c.text, size), c.expected) << c.text << " in pieces of " << size;
    }
  }
}

TEST(StopString, HoldsBackNoMoreThanItMust) {
  StopStringMatcher matcher = *StopStringMatcher::create({"<stop>"});
  std::string out;
  EXPECT_FALSE(matcher.push("abc<st", &out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(matcher.push("ack", &out));
  EXPECT_EQ(out, "abc<stack");
}

TEST(StopString, RefusesEmptyTooManyTooLong) {
  EXPECT_FALSE(StopStringMatcher::create({""}).ok());
  EXPECT_FALSE(StopStringMatcher::create(std::vector<std::string>(17, "x")).ok());
  EXPECT_FALSE(StopStringMatcher::create({std::string(1025, 'x')}).ok());
}

}  // namespace
}  // namespace sluice
