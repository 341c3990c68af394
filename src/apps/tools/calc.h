#pragma once
// Arithmetic without surprises: exact fractions inside, a number's text outside.

#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice {

/// Value of an expression of integers, decimals, + - * / (also unary + and -) and parentheses.
/// Computed with exact fractions of any size. An integer result is printed exactly; any other one as
/// printf's %.12g prints the nearest double ("0.3", "0.333333333333", "1.5e-07").
///
/// The Status's message is what the model is told: "division by zero", "bad expression: E" (also for
/// more than kCalcBytesMax bytes or kCalcDepthMax nested parentheses or signs), "result too large".
Result<std::string> calc(std::string_view expression);

inline constexpr size_t kCalcBytesMax = 1000;
inline constexpr int kCalcDepthMax = 100;

}  // namespace sluice
