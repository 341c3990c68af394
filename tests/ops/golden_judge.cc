#include "tests/ops/golden_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iostream>
#include <limits>

namespace sluice::golden {
namespace {

/// Consecutive floats are consecutive integers, -0 and +0 the same one.
int64_t ordered(float x, bool is_bf16) {
  const uint32_t bits = is_bf16 ? to_bf16(x).bits : std::bit_cast<uint32_t>(x);
  const uint32_t sign = is_bf16 ? 0x8000u : 0x80000000u;
  const auto magnitude = static_cast<int64_t>(bits & (sign - 1));
  return (bits & sign) != 0 ? -magnitude : magnitude;
}

int64_t ulps_apart(float a, float b, bool is_bf16) {
  if (std::isnan(a) || std::isnan(b)) return int64_t{1} << 32;
  return std::abs(ordered(a, is_bf16) - ordered(b, is_bf16));
}

/// Rows of `ours` that were recorded; a shape that differs is an error of the test.
float ours_at(const Recorded& oracle, const Matrix<float>& ours, int64_t i) {
  const int64_t cols = oracle.matrix.num_cols;
  SLUICE_CHECK_EQ(cols, ours.num_cols);
  const int64_t row = oracle.rows[static_cast<size_t>(i / cols)];
  SLUICE_CHECK_LT(row, ours.num_rows);
  return ours.row(row)[i % cols];
}

std::string place(const Recorded& oracle, const Matrix<float>& ours, int64_t i) {
  const int64_t cols = oracle.matrix.num_cols;
  const float a = ours_at(oracle, ours, i);
  const float b = oracle.matrix.values[static_cast<size_t>(i)];
  return fmt::format("worst at [{}, {}]: ours {}, oracle {}, {} ulps",
                     oracle.rows[static_cast<size_t>(i / cols)], i % cols, a, b,
                     ulps_apart(a, b, oracle.is_bf16));
}

struct Difference {
  int64_t count = 0;
  int64_t mismatches = 0;
  int64_t ulps_max = 0;
  int64_t worst = 0;
};

Difference compare(const Recorded& oracle, const Matrix<float>& ours) {
  Difference d;
  d.count = static_cast<int64_t>(oracle.matrix.values.size());
  for (int64_t i = 0; i < d.count; ++i) {
    const int64_t ulps = ulps_apart(ours_at(oracle, ours, i),
                                    oracle.matrix.values[static_cast<size_t>(i)], oracle.is_bf16);
    if (ulps != 0) ++d.mismatches;
    if (ulps > d.ulps_max) {
      d.ulps_max = ulps;
      d.worst = i;
    }
  }
  return d;
}

double over(double measured, double allowed) {
  if (measured == 0.0) return 0.0;
  return allowed == 0.0 ? std::numeric_limits<double>::infinity() : measured / allowed;
}

struct Error {
  double max = 0.0;
  double rms = 0.0;
  int64_t worst = 0;
};

/// Distance from the truth of value_at(i).
template <typename ValueAt>
Error error_of(const Recorded& truth, ValueAt value_at) {
  Error e;
  const auto n = static_cast<int64_t>(truth.matrix.values.size());
  for (int64_t i = 0; i < n; ++i) {
    const double d = std::abs(static_cast<double>(value_at(i)) -
                              static_cast<double>(truth.matrix.values[static_cast<size_t>(i)]));
    e.rms += d * d;
    if (!(d <= e.max)) {  // a NaN is the worst
      e.max = std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
      e.worst = i;
    }
  }
  e.rms = std::sqrt(e.rms / static_cast<double>(n));
  if (std::isnan(e.rms)) e.rms = std::numeric_limits<double>::infinity();
  return e;
}

}  // namespace

Verdict judge_ulps(const Recorded& oracle, const Matrix<float>& ours, UlpLimit limit) {
  const Difference d = compare(oracle, ours);
  const double share = static_cast<double>(d.mismatches) / static_cast<double>(d.count);
  Verdict v;
  v.excess = std::max(over(share, limit.mismatch_share),
                      over(static_cast<double>(d.ulps_max), static_cast<double>(limit.ulps)));
  v.text = fmt::format("{}: {} of {} differ (allowed {:.3g} %), by at most {} ulps (allowed {})",
                       oracle.name, d.mismatches, d.count, 100.0 * limit.mismatch_share, d.ulps_max,
                       limit.ulps);
  if (d.mismatches > 0) v.text += "; " + place(oracle, ours, d.worst);
  return v;
}

Verdict judge_error(const Recorded& oracle, const Recorded& truth, const Matrix<float>& ours,
                    double floor) {
  const Error mine = error_of(truth, [&](int64_t i) { return ours_at(oracle, ours, i); });
  const Error theirs =
      error_of(truth, [&](int64_t i) { return oracle.matrix.values[static_cast<size_t>(i)]; });
  const double size = error_of(truth, [](int64_t) { return 0.0f; }).rms;
  const Difference d = compare(oracle, ours);
  Verdict v;
  v.excess = std::max(over(mine.max, 2.0 * theirs.max + floor * size),
                      over(mine.rms, 2.0 * theirs.rms + floor * size));
  v.text = fmt::format(
      "{}: error max {:.3g} (oracle's {:.3g}), rms {:.3g} (oracle's {:.3g}), values' rms {:.3g}; "
      "{} of {} differ from the oracle; {}",
      oracle.name, mine.max, theirs.max, mine.rms, theirs.rms, size, d.mismatches, d.count,
      place(oracle, ours, mine.worst));
  return v;
}

Verdict judge_distance(const Recorded& oracle, const Matrix<float>& ours, double limit) {
  const double distance = error_of(oracle, [&](int64_t i) { return ours_at(oracle, ours, i); }).rms;
  const double size = error_of(oracle, [](int64_t) { return 0.0f; }).rms;
  const Difference d = compare(oracle, ours);
  Verdict v;
  v.excess = over(distance, limit * size);
  v.text = fmt::format("{}: {:.3g} from the oracle, relative (allowed {:.3g}); {} of {} differ",
                       oracle.name, distance / size, limit, d.mismatches, d.count);
  return v;
}

Verdict check_ulps(std::string_view name, const Matrix<float>& ours, UlpLimit limit) {
  return judge_ulps(GoldenSet::get().result(name), ours, limit);
}

Verdict check_error(std::string_view name, const Matrix<float>& ours, double floor) {
  const GoldenSet& set = GoldenSet::get();
  return judge_error(set.result(name), set.result(std::string(name) + ".truth"), ours, floor);
}

void expect_agrees(const Verdict& verdict) {
  std::cout << fmt::format("  [{:.2f} of limit] {}\n", verdict.excess, verdict.text);
  EXPECT_TRUE(verdict.ok()) << verdict.text;
}

void expect_rejects(std::string_view control, const Verdict& verdict) {
  std::cout << fmt::format("  [control: {}] {:.3g} times the limit\n", control, verdict.excess);
  EXPECT_FALSE(verdict.ok()) << "not rejected: " << control << "; " << verdict.text;
}

}  // namespace sluice::golden
