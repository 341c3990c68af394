#pragma once
// One table of cases per op serves every check: the arbiter's values, row identity, thread-count
// identity, repeat identity, untouched memory. OP_CASES(op) { ... cases.push_back(...) } opens the
// table and makes its tests; a check is also a plain function, so that a negative control can
// demand that it fails.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/op_table.h"
#include "tests/ops/rng.h"
#include "tests/ops/world.h"

namespace sluice {

struct OpCase {
  /// Runs the op of `table` on the rows of `runs`, which are in order and adjoin. Rows outside them
  /// do not exist for the call: implementations slice their views with RowWindow.
  using Call =
      std::function<void(const OpTable& table, World&, OpContext&, std::span<const RowRun> runs)>;

  std::string name;
  World world = {};
  std::vector<RowRun> runs = {};
  Call call = {};
  /// False for gdn_chunk, whose rows may be cut at multiples of kGdnChunk only.
  bool cuts_anywhere = true;
  /// The arbiter's result, made when first asked for: it is slow, and several checks need it.
  std::shared_ptr<World> expected = std::make_shared<World>();
};

/// What a call may use; scratch for every case, and pages that are not touched cost nothing.
struct OpSession {
  explicit OpSession(int num_threads);
  OpContext context() { return {.pool = &pool, .scratch = &scratch}; }
  ThreadPool pool;
  Arena scratch;
};

/// The rows a call covers: views are cut to them and runs moved to start at row 0.
struct RowWindow {
  explicit RowWindow(std::span<const RowRun> all);
  template <typename T>
  MatView<T> rows(MatView<T> view) const {
    return view.rows(first, count);
  }
  int64_t first = 0;
  int64_t count = 0;
  std::vector<RowRun> runs = {};
};

/// Stateless ops: one run that says "these rows".
std::vector<RowRun> plain_rows(int64_t num_rows);
/// `run` cut after `num_rows` rows.
std::pair<RowRun, RowRun> cut_run(const RowRun& run, int32_t num_rows);

/// What the tables are checked on, and each program links one of: every instruction set of this machine
/// (cpu_backends.cc), or the GPU (tests/gpu/gpu_backend.cc).
std::vector<const OpTable*> tested_backends();
/// Those whose `op` is not the one of a weaker set: what a table is checked on.
template <typename Op>
std::vector<const OpTable*> tested_backends(Op OpTable::*op) {
  std::vector<const OpTable*> backends;
  for (const OpTable* table : tested_backends()) {
    if (backends.empty() || backends.back()->*op != table->*op) backends.push_back(table);
  }
  return backends;
}
/// The same and the arbiter.
template <typename Op>
std::vector<const OpTable*> with_ref(Op OpTable::*op) {
  std::vector<const OpTable*> backends = tested_backends(op);
  backends.push_back(&ref_ops());
  return backends;
}

/// The case's world after the op, run on `num_threads` threads in one call, or in one call per
/// element of `calls`.
World run_case(const OpCase& c, const OpTable& table, int num_threads = 2);
/// What the call takes from scratch.
size_t scratch_peak(const OpCase& c, const OpTable& table, int num_threads);
World run_in_calls(const OpCase& c, const OpTable& table,
                   const std::vector<std::vector<RowRun>>& calls);

Failure check_values(const OpCase& c, const OpTable& table);
Failure check_row_identity(const OpCase& c, const OpTable& table);
Failure check_thread_identity(const OpCase& c, const OpTable& table);
Failure check_repeats(const OpCase& c, const OpTable& table);
Failure check_untouched(const OpCase& c, const OpTable& table);

using Check = Failure (*)(const OpCase&, const OpTable&);
using CaseTable = void (*)(std::vector<OpCase>& cases);
/// The table's cases, built once a program.
const std::vector<OpCase>& cases_of(CaseTable table);
/// Runs `check` over a table on `backends`, and fails the running test with op, backend and case.
void expect_all(CaseTable table, Check check, const std::vector<const OpTable*>& backends);
/// True when some case of the table rejects `wrong`.
bool any_case_rejects(CaseTable table, Check check, const OpTable& wrong);

}  // namespace sluice

#define OP_CASES(op)                                                              \
  static void op##_cases(std::vector<OpCase>& cases);                             \
  TEST(op, AgreesWithTheArbiter) {                                                \
    expect_all(op##_cases, check_values, tested_backends(&OpTable::op));          \
  }                                                                               \
  TEST(op, RowsDoNotKnowEachOther) {                                              \
    expect_all(op##_cases, check_row_identity, tested_backends(&OpTable::op));    \
  }                                                                               \
  TEST(op, AnyThreadCountGivesTheSameBits) {                                      \
    expect_all(op##_cases, check_thread_identity, tested_backends(&OpTable::op)); \
  }                                                                               \
  TEST(op, RepeatsItsBits) {                                                      \
    expect_all(op##_cases, check_repeats, tested_backends(&OpTable::op));         \
  }                                                                               \
  TEST(op, WritesOnlyItsOutputs) {                                                \
    expect_all(op##_cases, check_untouched, tested_backends(&OpTable::op));       \
  }                                                                               \
  TEST(op, TheArbiterKeepsItsOwnRules) {                                          \
    expect_all(op##_cases, check_row_identity, {&ref_ops()});                     \
    expect_all(op##_cases, check_untouched, {&ref_ops()});                        \
  }                                                                               \
  static void op##_cases(std::vector<OpCase>& cases)
