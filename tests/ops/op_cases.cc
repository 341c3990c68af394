#include "tests/ops/op_cases.h"

#include <algorithm>
#include <map>

namespace sluice {
namespace {

Failure prefixed(Failure f, std::string_view what) {
  if (f) *f = fmt::format("{}: {}", what, *f);
  return f;
}

/// Cuts of a run into calls: row by row, or chunk by chunk where the op allows no other.
std::vector<std::vector<RowRun>> smallest_calls(const OpCase& c) {
  std::vector<std::vector<RowRun>> calls;
  const auto step = static_cast<int32_t>(c.cuts_anywhere ? 1 : kGdnChunk);
  for (RowRun rest : c.runs) {
    while (rest.num_rows > step) {
      const auto [head, tail] = cut_run(rest, step);
      calls.push_back({head});
      rest = tail;
    }
    calls.push_back({rest});
  }
  return calls;
}

}  // namespace

OpSession::OpSession(int num_threads)
    : pool(num_threads), scratch(Arena::create(size_t{64} << 20, "op scratch").value()) {}

RowWindow::RowWindow(std::span<const RowRun> all) : runs(all.begin(), all.end()) {
  first = runs.front().first_row;
  for (RowRun& run : runs) {
    run.first_row -= static_cast<int32_t>(first);
    count += run.num_rows;
  }
}

std::vector<RowRun> plain_rows(int64_t num_rows) {
  return {RowRun{.num_rows = static_cast<int32_t>(num_rows)}};
}

std::pair<RowRun, RowRun> cut_run(const RowRun& run, int32_t num_rows) {
  RowRun head = run;
  RowRun tail = run;
  head.num_rows = num_rows;
  tail.first_row += num_rows;
  tail.position += num_rows;
  tail.num_rows -= num_rows;
  return {head, tail};
}

World run_case(const OpCase& c, const OpTable& table, int num_threads) {
  OpSession session(num_threads);
  World world = c.world;
  OpContext context = session.context();
  c.call(table, world, context, c.runs);
  return world;
}

size_t scratch_peak(const OpCase& c, const OpTable& table, int num_threads) {
  OpSession session(num_threads);
  World world = c.world;
  OpContext context = session.context();
  c.call(table, world, context, c.runs);
  return session.scratch.peak();
}

World run_in_calls(const OpCase& c, const OpTable& table,
                   const std::vector<std::vector<RowRun>>& calls) {
  OpSession session(1);
  World world = c.world;
  OpContext context = session.context();
  for (const std::vector<RowRun>& runs : calls) c.call(table, world, context, runs);
  return world;
}

Failure check_values(const OpCase& c, const OpTable& table) {
  if (c.expected->tensors.empty()) *c.expected = run_case(c, ref_ops());
  return compare_values(*c.expected, run_case(c, table));
}

Failure check_row_identity(const OpCase& c, const OpTable& table) {
  const World whole = run_case(c, table);
  return prefixed(compare_bits(whole, run_in_calls(c, table, smallest_calls(c))), "cut into calls");
}

Failure check_thread_identity(const OpCase& c, const OpTable& table) {
  const World one = run_case(c, table, 1);
  for (const int num_threads : {2, 3, 5}) {
    if (Failure f = compare_bits(one, run_case(c, table, num_threads))) {
      return prefixed(f, fmt::format("{} threads", num_threads));
    }
  }
  return std::nullopt;
}

Failure check_repeats(const OpCase& c, const OpTable& table) {
  return compare_bits(run_case(c, table), run_case(c, table));
}

Failure check_untouched(const OpCase& c, const OpTable& table) {
  return compare_untouched(c.world, run_case(c, table));
}

const std::vector<OpCase>& cases_of(CaseTable table) {
  static std::map<CaseTable, std::vector<OpCase>> built;
  std::vector<OpCase>& cases = built[table];
  if (cases.empty()) table(cases);
  return cases;
}

void expect_all(CaseTable table, Check check, const std::vector<const OpTable*>& backends) {
  ASSERT_FALSE(cases_of(table).empty());
  for (const OpTable* backend : backends) {
    for (const OpCase& c : cases_of(table)) {
      const Failure f = check(c, *backend);
      EXPECT_FALSE(f) << backend->name << ", " << c.name << ": " << *f;
    }
  }
}

bool any_case_rejects(CaseTable table, Check check, const OpTable& wrong) {
  return std::ranges::any_of(cases_of(table),
                             [&](const OpCase& c) { return check(c, wrong).has_value(); });
}

}  // namespace sluice
