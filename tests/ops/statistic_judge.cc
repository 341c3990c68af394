#include "tests/ops/statistic_judge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

namespace sluice {
namespace {

double widened(uint16_t bits) {
  return static_cast<double>(to_float(bf16{bits}));
}

}  // namespace

double distance(const Interval& range, double x) {
  if (std::isnan(x + range.low + range.high)) return std::numeric_limits<double>::quiet_NaN();
  return std::max({range.low - x, x - range.high, 0.0});
}

Interval rounded_from(bf16 x) {
  const auto magnitude = static_cast<uint16_t>(x.bits & 0x7fff);
  const double at = widened(magnitude);
  const double above = (at + widened(static_cast<uint16_t>(magnitude + 1))) / 2;
  if (magnitude == 0) return {-above, above};
  const double below = (at + widened(static_cast<uint16_t>(magnitude - 1))) / 2;
  return x.bits == magnitude ? Interval{below, above} : Interval{-above, -below};
}

double error_before_rounding(bf16 x, double truth) {
  if (std::abs(truth) < kVanishing) {
    const double value = std::abs(static_cast<double>(to_float(x)));
    return value <= 2 * kVanishing ? 0.0 : value / kVanishing;
  }
  return distance(rounded_from(x), truth) / std::abs(truth);
}

void Bracket::narrow(Interval seen, double slack) {
  const double low = seen.low * (1.0 - slack);
  const double high = seen.high * (1.0 + slack);
  // A NaN, once seen, stays.
  if (!(low <= at_.low)) at_.low = low;
  if (!(high >= at_.high)) at_.high = high;
}

double Bracket::outside(double truth) const {
  return distance(at_, truth) / truth;
}

double Bracket::farthest(double truth) const {
  const double low = std::abs(at_.low - truth);
  const double high = std::abs(at_.high - truth);
  return (low > high || std::isnan(low) ? low : high) / truth;
}

bool Worst::is_worst(double error, double bound) {
  const double share = std::isnan(error) ? std::numeric_limits<double>::infinity() : error / bound;
  if (share <= excess_ && bound_ > 0.0) return false;
  excess_ = share;
  error_ = error;
  bound_ = bound;
  return true;
}

void Worst::see(const Worst& other) {
  if (other.excess_ > excess_ || bound_ == 0.0) *this = other;
}

std::string Worst::text() const {
  return fmt::format("error {:.3g}, bound {:.3g}; {}", error_, bound_, where_);
}

void expect_within(std::string_view who, const Worst& worst) {
  std::cout << fmt::format("  [{:.2f} of bound] {}: {}\n", worst.excess(), who, worst.text());
  EXPECT_LE(worst.excess(), 1.0) << who << ": " << worst.text();
}

void expect_beyond(std::string_view control, const Worst& worst) {
  std::cout << fmt::format("  [control: {}] {:.3g} times the bound; {}\n", control, worst.excess(),
                           worst.text());
  EXPECT_GT(worst.excess(), 1.0) << "not rejected: " << control;
}

}  // namespace sluice
