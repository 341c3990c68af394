#include "verify/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

double excess(const Check& check) {
  return check.limit > 0.0 ? check.value / check.limit : check.value;
}

}  // namespace

bool VerifyReport::passed() const {
  return num_failed() == 0;
}

int VerifyReport::num_failed() const {
  return static_cast<int>(
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return !c.passed; }));
}

const Check* VerifyReport::worst_failure() const {
  const Check* worst = nullptr;
  for (const Check& check : checks) {
    if (check.passed) continue;
    if (worst == nullptr || !(excess(check) <= excess(*worst))) worst = &check;
  }
  return worst;
}

std::string report_table(const VerifyReport& report) {
  size_t name_width = 5;
  size_t subject_width = 4;
  for (const Check& check : report.checks) {
    name_width = std::max(name_width, check.name.size());
    subject_width = std::max(subject_width, check.subject.size());
  }
  std::string table = fmt::format("      {:{}}  {:{}}  {:>10}  {:>10}\n", "check", name_width,
                                  "case", subject_width, "value", "limit");
  for (const Check& check : report.checks) {
    table += fmt::format("{}  {:{}}  {:{}}  {:>10.4g}  {:>10.4g}  {}\n",
                         check.passed ? "PASS" : "FAIL", check.name, name_width, check.subject,
                         subject_width, check.value, check.limit, check.text);
  }
  const int num_failed = report.num_failed();
  return table + fmt::format("{}: {} checks, {} failed\n", num_failed == 0 ? "PASS" : "FAIL",
                             report.checks.size(), num_failed);
}

Check bounded(std::string name, std::string subject, double value, double limit, std::string text) {
  const bool passed = std::isfinite(value) && std::isfinite(limit) && value <= limit;
  return {std::move(name), std::move(subject), passed, value, limit, std::move(text)};
}

}  // namespace sluice
