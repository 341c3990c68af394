#pragma once

#include <string>
#include <vector>

namespace sluice {

/// One line of the table.
struct Check {
  std::string name;     // "prompt logits"
  std::string subject;  // "0420_code", "all cases"
  bool passed = false;
  /// How far: value against limit, in the unit of the check. A control's strength is value / limit.
  double value = 0.0;
  double limit = 0.0;
  std::string text;  // what was compared, and where the worst is
};

struct VerifyReport {
  std::vector<Check> checks;

  bool passed() const;
  int num_failed() const;
  /// The failed check that is furthest over its limit; null when none failed.
  const Check* worst_failure() const;
};

/// A fixed-width table, one line a check, then "PASS" or "FAIL" with the counts.
std::string report_table(const VerifyReport& report);

/// Passed when value <= limit, both finite.
Check bounded(std::string name, std::string subject, double value, double limit, std::string text);

}  // namespace sluice
