#include "verify/agreement.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

using Row = std::vector<bf16>;

/// Logits of every position of a prompt.
std::vector<Row> prompt_rows(ModelRunner& runner, std::span<const int32_t> ids) {
  std::vector<Row> rows;
  Sequence sequence = runner.open();
  runner.prompt(ids, &sequence, [&](int64_t, const StepOutput& output) {
    for (int64_t i = 0; i < output.logits.num_rows; ++i) {
      const bf16* row = output.logits.row(i);
      rows.emplace_back(row, row + output.logits.num_cols);
    }
  });
  runner.close(&sequence);
  return rows;
}

/// The row's best logit less that of `id`; infinite where one is no number.
double margin_of(const Row& row, int32_t best, int32_t id) {
  const double margin = static_cast<double>(to_float(row[static_cast<size_t>(best)])) -
                        to_float(row[static_cast<size_t>(id)]);
  return std::isnan(margin) ? INFINITY : margin;
}

}  // namespace

void check_agreement(ModelRunner& ours, ModelRunner& theirs, const Golden& golden,
                     const Envelope& envelope, int64_t num_ids_max, VerifyReport* report) {
  int64_t num_positions = 0;
  int64_t num_flips = 0;
  double worst = 0.0;
  std::string where = "none";
  for (const GoldenCase& c : golden.cases) {
    if (num_ids_max > 0 && static_cast<int64_t>(c.ids.size()) > num_ids_max) continue;
    const std::vector<Row> our_rows = prompt_rows(ours, c.ids);
    const std::vector<Row> their_rows = prompt_rows(theirs, c.ids);
    for (size_t position = 0; position < our_rows.size(); ++position) {
      ++num_positions;
      const int32_t our_id = best_id(our_rows[position]);
      const int32_t their_id = best_id(their_rows[position]);
      if (our_id == their_id) continue;
      ++num_flips;
      const double margin = std::max(margin_of(our_rows[position], our_id, their_id),
                                     margin_of(their_rows[position], their_id, our_id));
      if (margin < worst) continue;
      worst = margin;
      where = fmt::format("{} position {}", c.name, position);
    }
  }
  report->checks.push_back(
      bounded("two backends", "all cases", worst, envelope.margin,
              fmt::format("{} of {} top-1 differ, largest margin there, worst: {}", num_flips,
                          num_positions, where)));
}

}  // namespace sluice
