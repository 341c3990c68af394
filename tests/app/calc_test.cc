#include "apps/tools/calc.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

std::string evaluate(std::string_view expression) {
  const Result<std::string> result = calc(expression);
  return result.ok() ? *result : "error: " + result.status().message();
}

TEST(Calc, Values) {
  const struct {
    const char* expression;
    const char* expected;
  } cases[] = {
      {"1+2*3", "7"},
      {" ( 1 + 2 ) * 3 ", "9"},
      {"2-3-4", "-5"},
      {"100/10/5", "2"},
      {"-3--3", "0"},
      {"+-+2", "-2"},
      {"2*-3", "-6"},
      {"0.1+0.2", "0.3"},
      {"0.1+0.2-0.3", "0"},
      {"1/3", "0.333333333333"},
      {"2/3", "0.666666666667"},
      {"1/3*3", "1"},
      {"10/4", "2.5"},
      {"1.", "1"},
      {".5", "0.5"},
      {"007", "7"},
      {"-0", "0"},
      {"1/8", "0.125"},
      {"1/10000000", "1e-07"},
      {"9223372036854775807+1", "9223372036854775808"},
      {"123456789012345678901234567890*10", "1234567890123456789012345678900"},
      {"123456789.123456", "123456789.123"},
      {"1e5", "error: bad expression: 1e5"},
      {"2**3", "error: bad expression: 2**3"},
      {"2^3", "error: bad expression: 2^3"},
      {"(1", "error: bad expression: (1"},
      {"1)", "error: bad expression: 1)"},
      {"", "error: bad expression: "},
      {"()", "error: bad expression: ()"},
      {"1 2", "error: bad expression: 1 2"},
      {"1.2.3", "error: bad expression: 1.2.3"},
      {".", "error: bad expression: ."},
      {"1+", "error: bad expression: 1+"},
      {"*1", "error: bad expression: *1"},
      {"sqrt(4)", "error: bad expression: sqrt(4)"},
      {"1,000", "error: bad expression: 1,000"},
      {"1/0", "error: division by zero"},
      {"1/(2-2)", "error: division by zero"},
      {"0/0.0", "error: division by zero"},
  };
  for (const auto& c : cases) EXPECT_EQ(evaluate(c.expression), c.expected) << c.expression;
}

TEST(Calc, LimitsHold) {
  const auto nested = [](int depth) {
    const auto size = static_cast<size_t>(depth);
    return std::string(size, '(') + "1" + std::string(size, ')');
  };
  EXPECT_EQ(evaluate(nested(kCalcDepthMax - 1)), "1");
  EXPECT_TRUE(evaluate(nested(kCalcDepthMax)).starts_with("error: bad expression"));
  EXPECT_TRUE(evaluate(std::string(999, '-') + "1").starts_with("error: bad expression"));
  EXPECT_EQ(evaluate(std::string(kCalcBytesMax - 1, ' ') + "1"), "1");
  EXPECT_TRUE(evaluate(std::string(kCalcBytesMax, ' ') + "1").starts_with("error: bad expression"));
  EXPECT_TRUE(evaluate(std::string("1\0", 2)).starts_with("error: bad expression"));
  EXPECT_EQ(evaluate(std::string(900, '1') + ".5"), "error: result too large");
  EXPECT_EQ(evaluate("1/" + std::string(900, '9')), "0");
}

}  // namespace
}  // namespace sluice
