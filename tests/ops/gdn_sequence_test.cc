// What gdn_step and gdn_chunk promise over a whole sequence: cuts, ragged ends, the two forms
// against each other, and drift over thousands of steps.
#include <algorithm>

#include "tests/ops/gdn_case.h"
#include "tests/ops/gdn_twin.h"

namespace sluice {
namespace {

/// Decay slow enough for a row to remember all rows before it: a wrong cut cannot be forgotten.
OpCase slow_decay_case(const GdnRun& run) {
  return gdn_case({.k_heads = 1, .v_heads = 2, .runs = {run}, .g_high = 0.02}, GdnForm::kChunk);
}

constexpr GdnRun kLong{.position = 64, .rows = 300, .checkpoint = true};

/// At any multiple of 64, in any number of calls, the same rows, state and checkpoint.
TEST(gdn_chunk, MayBeCutAtAnyMultipleOfTheChunk) {
  const OpCase c = slow_decay_case(kLong);
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    const World whole = run_case(c, *backend);
    for (int32_t cut = kGdnChunk; cut < kLong.rows; cut += kGdnChunk) {
      const auto [head, tail] = cut_run(c.runs[0], cut);
      const Failure f = compare_bits(whole, run_in_calls(c, *backend, {{head}, {tail}}));
      EXPECT_FALSE(f) << backend->name << " cut at " << cut << ": " << *f;
    }
  }
}

World run_first_rows(const OpCase& c, const OpTable& backend, int32_t num_rows) {
  OpCase shorter = c;
  shorter.runs[0].num_rows = num_rows;
  return run_case(shorter, backend);
}

bool same_rows(const World& a, const World& b, int64_t num_rows) {
  const Tensor& x = a.tensors.back();  // o
  const Tensor& y = b.tensors.back();
  const auto n = static_cast<int64_t>(x.element_size()) * num_rows * x.stride;
  return std::equal(x.bytes.begin(), x.bytes.begin() + n, y.bytes.begin());
}

TEST(gdn_chunk, ARaggedEndGivesItsRowsTheSameBits) {
  const OpCase c = slow_decay_case({0, 192});
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    const World whole = run_case(c, *backend);
    for (const int32_t rows : {1, 2, 15, 16, 17, 31, 33, 63, 65, 79, 80, 100, 127, 129}) {
      EXPECT_TRUE(same_rows(whole, run_first_rows(c, *backend, rows), rows))
          << backend->name << ", " << rows << " rows";
    }
  }
}

/// An append the engine's way: the checkpoint is restored and the ragged rows run again.
TEST(gdn_chunk, ContinuesFromItsCheckpoint) {
  const OpCase c = slow_decay_case({0, 150, true});
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    const World whole = run_case(c, *backend);
    OpCase again = c;
    again.world = run_first_rows(c, *backend, 100);
    RowRun tail = cut_run(c.runs[0], 64).second;
    const World rest = [&] {
      OpCase resumed = again;
      MatView<float> slots = resumed.world.mat(TensorRef<float>{0});
      std::copy_n(slots.row(tail.checkpoint_slot), slots.num_cols, slots.row(tail.slot));
      resumed.runs = {tail};
      return run_case(resumed, *backend);
    }();
    const Failure f = compare_bits(whole, rest);
    EXPECT_FALSE(f) << backend->name << ": " << *f;
  }
}

/// Both forms on the same rows. They differ in fp32 roundings only.
TEST(gdn_chunk, AgreesWithTheRecurrentForm) {
  for (const double g_high : {20.0, 0.1}) {
    const GdnCase params{.k_heads = 1, .v_heads = 2, .runs = {{64, 200}}, .g_high = g_high};
    for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
      const World step = run_case(gdn_case(params, GdnForm::kStep), *backend);
      const World chunk = run_case(gdn_case(params, GdnForm::kChunk), *backend);
      const Failure f = compare_values(step, chunk);
      EXPECT_FALSE(f) << backend->name << ": " << *f;
    }
  }
}

/// A chunk grid that starts at the call instead of at position 0 is caught by the cut check. (Not the
/// arbiter's: in fp64 every grid rounds to the same bits.)
TEST(gdn_chunk, TheCutCheckRejectsAnotherGrid) {
  static const OpTable* backend = tested_backends().back();
  OpTable wrong = *backend;
  wrong.gdn_chunk = [](const GdnArgs& args, OpContext& context) {
    auto [head, tail] = cut_run(args.runs[0], std::min(48, args.runs[0].num_rows));
    tail.position = 0;
    for (const RowRun& run : {head, tail}) {
      GdnArgs part = args;
      part.runs = {&run, 1};
      if (run.num_rows > 0) backend->gdn_chunk(part, context);
    }
  };
  const OpCase c = slow_decay_case({0, 128});
  EXPECT_TRUE(check_row_identity(c, wrong));
}

/// 4,000 steps with slow decay: the fp32 state stays where an fp64 recurrence puts it. The error of
/// a rounding per step is damped by the decay and by the delta rule itself, so it does not grow.
TEST(gdn_step, DoesNotDriftOverThousandsOfSteps) {
  constexpr int32_t kSteps = 4000;
  const OpCase c = gdn_case(
      {.k_heads = 1, .v_heads = 2, .runs = {{0, kSteps}}, .k_dim = 32, .v_dim = 32, .g_high = 0.01},
      GdnForm::kStep);
  GdnState64 exact(2 * 32 * 32, 0.0);
  OpTable twin = ref_ops();
  static GdnState64* state = nullptr;
  state = &exact;
  twin.gdn_step = [](const GdnArgs& args, OpContext&) {
    for (int64_t r = 0; r < args.qkv.num_rows; ++r) {
      const std::vector<double> o = gdn_twin_row(args, r, *state);
      for (size_t j = 0; j < o.size(); ++j) args.o.row(r)[j] = to_bf16(static_cast<float>(o[j]));
    }
    std::transform(state->begin(), state->end(), args.state.slot(args.runs[0].slot),
                   [](double x) { return static_cast<float>(x); });
  };
  const World expected = run_case(c, twin);
  for (const OpTable* backend : with_ref(&OpTable::gdn_chunk)) {
    const Failure f = compare_values(expected, run_case(c, *backend));
    EXPECT_FALSE(f) << backend->name << ": " << *f;
  }
}

}  // namespace
}  // namespace sluice
