#pragma once
// What a bf16 result says about the number it was rounded from, and how near a measured error comes
// to the bound that the arithmetic allows. The bounds are in fp32 roundings, thousands of times
// smaller than the bf16 rounding they are read through.

#include <string>
#include <string_view>

#include "base/bf16.h"

namespace sluice {

/// The largest relative error of one fp32 rounding.
inline constexpr double kF32Rounding = 0x1p-24;
/// And of one bf16 rounding.
inline constexpr double kBf16Rounding = 0x1p-8;
/// Below this a value is only asked to be about as small: an fp32 exponential may be 0 from 2^-126 on,
/// and factors of it are still to come.
inline constexpr double kVanishing = 0x1p-100;

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// How far x is from it, 0 inside; NaN when an end or x is.
double distance(const Interval& range, double x);

/// The numbers that round to x; NaN ends for a NaN.
Interval rounded_from(bf16 x);

/// The least relative error the number before the rounding must have had; 0 when `truth` rounds to
/// x. Where truth is below kVanishing, x may be anything up to twice that, and is wrong altogether
/// beyond.
double error_before_rounding(bf16 x, double truth);

/// Where a positive number lies, narrowed by one observation after another.
class Bracket {
 public:
  /// The number lies in `seen`, give or take `slack` of it.
  void narrow(Interval seen, double slack);
  /// What it is wrong by at least, relative to `truth`: 0 when truth is inside.
  double outside(double truth) const;
  /// What it can be wrong by at most.
  double farthest(double truth) const;

 private:
  Interval at_{0.0, 1e300};
};

/// Of many errors the one that uses most of its bound.
class Worst {
 public:
  /// `error` over `bound`; a NaN is beyond every bound. `where()` gives the place when it is the worst
  /// so far.
  template <typename Where>
  void see(double error, double bound, Where where) {
    if (is_worst(error, bound)) where_ = where();
  }
  void see(const Worst& other);
  /// Share of the bound; above 1 is a failure.
  double excess() const { return excess_; }
  std::string text() const;

 private:
  bool is_worst(double error, double bound);

  double excess_ = 0.0;
  double error_ = 0.0;
  double bound_ = 0.0;
  std::string where_ = "nothing measured";
};

/// Prints how near the bound `who` comes, and fails the test beyond it.
void expect_within(std::string_view who, const Worst& worst);
/// A wrong variant; prints how far beyond the bound it is, and fails the test when it is not.
void expect_beyond(std::string_view control, const Worst& worst);

}  // namespace sluice
