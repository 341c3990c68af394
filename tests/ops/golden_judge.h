#pragma once
// How near is near enough. Every checker returns by how much its limit is used, so that a negative
// control can show how far beyond it a wrong op is.

#include <gtest/gtest.h>

#include <string>

#include "tests/ops/golden_set.h"

namespace sluice::golden {

struct Verdict {
  /// Measured over allowed; above 1 is a failure.
  double excess = 0.0;
  /// Agreement figures, and the worst coordinate with both values and ulps.
  std::string text;
  bool ok() const { return excess <= 1.0; }
};

/// For ops whose rounding sites are all in the contract: at most `mismatch_share` of the values may
/// differ from the oracle's, each by at most `ulps` (bf16) or `ulps` fp32 steps when the recorded
/// tensor is fp32.
struct UlpLimit {
  double mismatch_share = 0.0;
  int64_t ulps = 0;
};
Verdict judge_ulps(const Recorded& oracle, const Matrix<float>& ours, UlpLimit limit);

/// For sums: largest and root-mean-square error against <name>.truth at most twice the oracle's own
/// plus `floor` times the truth's root mean square.
Verdict judge_error(const Recorded& oracle, const Recorded& truth, const Matrix<float>& ours,
                    double floor);

/// For a chain of ops, where one moved rounding moves many: root mean square of ours - oracle over
/// that of the oracle.
Verdict judge_distance(const Recorded& oracle, const Matrix<float>& ours, double limit);

/// One rounding of a value of typical size.
inline constexpr double kFloorBf16 = 0x1p-9;
inline constexpr double kFloorF32 = 0x1p-22;

/// The checks by name in the golden set; `ours` has all rows of the op's output.
Verdict check_ulps(std::string_view name, const Matrix<float>& ours, UlpLimit limit);
Verdict check_error(std::string_view name, const Matrix<float>& ours, double floor = kFloorBf16);

/// Prints the agreement figures and fails the test with them when the limit is passed.
void expect_agrees(const Verdict& verdict);
/// A wrong variant that the checker must reject; prints by how much it did.
void expect_rejects(std::string_view control, const Verdict& verdict);

}  // namespace sluice::golden
