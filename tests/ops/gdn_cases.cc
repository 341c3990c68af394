#include <algorithm>

#include "tests/ops/gdn_case.h"
#include "tests/ops/gdn_twin.h"

namespace sluice {
namespace {

void add_shapes(std::vector<OpCase>& cases, GdnForm form, int32_t position, int32_t rows) {
  for (const auto& [k, v] : {std::pair<int64_t, int64_t>{1, 1}, {2, 2}, {2, 4}, {2, 6}}) {
    cases.push_back(gdn_case({.k_heads = k, .v_heads = v, .runs = {{position, rows, true}}}, form));
  }
}

OP_CASES(gdn_step) {
  const GdnForm form = GdnForm::kStep;
  for (const int32_t rows : {1, 2, 3, 9}) add_shapes(cases, form, 37, rows);
  cases.push_back(gdn_case({.k_heads = 16, .v_heads = 16, .runs = {{5, 1}}}, form));
  cases.push_back(gdn_case({.k_heads = 16, .v_heads = 48, .runs = {{5, 2}}}, form));
  cases.push_back(
      gdn_case({.k_heads = 2, .v_heads = 2, .runs = {{0, 70}, {60, 1}, {63, 8}}}, form));
  cases.push_back(gdn_case({.k_heads = 1, .v_heads = 3, .runs = {{3, 4}}, .qk = 1e-3}, form));
  cases.push_back(gdn_case({.k_heads = 1, .v_heads = 3, .runs = {{3, 4}}, .qk = 0.0}, form));
  cases.push_back(gdn_case({.k_heads = 2, .v_heads = 2, .runs = {{3, 4}}, .pad = 3}, form));
  cases.push_back(
      gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{3, 4}}, .k_dim = 64, .v_dim = 32}, form));
  cases.push_back(
      gdn_case({.k_heads = 1, .v_heads = 1, .runs = {{0, 80}}, .same_keys = true}, form));
}

OP_CASES(gdn_chunk) {
  const GdnForm form = GdnForm::kChunk;
  for (const int32_t rows : {1, 2, 31, 63, 64, 65, 128, 150}) {
    cases.push_back(gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{0, rows, true}}}, form));
    cases.push_back(gdn_case({.k_heads = 1, .v_heads = 1, .runs = {{192, rows, true}}}, form));
  }
  add_shapes(cases, form, 64, 70);
  cases.push_back(gdn_case(
      {.k_heads = 2, .v_heads = 2, .runs = {{0, 70, true}, {64, 1, true}, {128, 64, true}}}, form));
  cases.push_back(gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{0, 130}}, .g_high = 0.1}, form));
  cases.push_back(gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{64, 66}}, .qk = 1e-3}, form));
  cases.push_back(gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{64, 66}}, .pad = 3}, form));
  cases.push_back(
      gdn_case({.k_heads = 1, .v_heads = 2, .runs = {{0, 70}}, .k_dim = 64, .v_dim = 32}, form));
  cases.push_back(
      gdn_case({.k_heads = 1, .v_heads = 1, .runs = {{0, 130}}, .same_keys = true}, form));
}

struct GatesCase {
  int64_t rows;
  int64_t heads;
  double a;  // magnitude
  int64_t pad = 0;
};

OpCase gdn_gates_case(const GatesCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows + 100 * p.heads));
  OpCase c{.name = fmt::format("rows={} heads={} a={} pad={}", p.rows, p.heads, p.a, p.pad)};
  const auto a = c.world.filled<bf16>(
      "a", p.rows, p.heads, [&] { return p.a * rng.normal(); }, p.pad);
  const auto b = c.world.filled<bf16>(
      "b", p.rows, p.heads, [&] { return 3 * rng.normal(); }, p.pad);
  const auto A_log =
      c.world.filled<float>("A_log", 1, p.heads, [&] { return rng.uniform(-3.0, 3.0); });
  const auto dt_bias =
      c.world.filled<float>("dt_bias", 1, p.heads, [&] { return rng.uniform(-6.0, 1.0); });
  const auto g = c.world.output<float>("g", p.rows, p.heads, {.ulps = 8, .mismatch = 1.0}, p.pad);
  // Holds bf16 values: a flip of that rounding is 2^16 fp32 ulps.
  const auto beta =
      c.world.output<float>("beta", p.rows, p.heads, {.ulps = 1 << 16, .mismatch = 0.002}, p.pad);
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.gdn_gates({.a = window.rows(world.mat(a)),
                 .b = window.rows(world.mat(b)),
                 .A_log = world.span(A_log),
                 .dt_bias = world.span(dt_bias),
                 .g = window.rows(world.mat(g)),
                 .beta = window.rows(world.mat(beta))},
                context);
  };
  return c;
}

OP_CASES(gdn_gates) {
  for (const int64_t rows : {1, 2, 65}) {
    for (const int64_t heads : {1, 6, 16, 48}) cases.push_back(gdn_gates_case({rows, heads, 2.0}));
  }
  cases.push_back(gdn_gates_case({9, 16, 30.0}));  // both sides of the softplus threshold
  cases.push_back(gdn_gates_case({9, 7, 1.0, 2}));
}

// ---- Negative controls

template <GdnMistake kMistake>
void twin_op(const GdnArgs& args, OpContext&) {
  gdn_twin(args, kMistake);
}

using GdnOp = void (*)(const GdnArgs&, OpContext&);
constexpr GdnOp kMistakes[] = {
    twin_op<GdnMistake::kDecayAfterUpdate>,
    twin_op<GdnMistake::kReadBeforeUpdate>,
    twin_op<GdnMistake::kEpsOnMean>,
    twin_op<GdnMistake::kNoL2Norm>,
    twin_op<GdnMistake::kQueryNotScaled>,
    twin_op<GdnMistake::kKeyHeadModulo>,
    twin_op<GdnMistake::kBetaOnOutput>,
    twin_op<GdnMistake::kStateTransposed>,
    twin_op<GdnMistake::kDecayNotExponentiated>,
};

/// The cases without checkpoint: the twin writes none.
void plain_chunk_cases(std::vector<OpCase>& cases) {
  gdn_chunk_cases(cases);
  std::erase_if(cases, [](const OpCase& c) {
    return std::ranges::any_of(c.runs,
                               [](const RowRun& r) { return r.checkpoint_slot != kNoSlot; });
  });
  for (OpCase& c : cases) {
    for (RowRun& run : c.runs) run.checkpoint_slot = kNoSlot;
  }
  cases.push_back(gdn_case({.k_heads = 2, .v_heads = 4, .runs = {{64, 70}}}, GdnForm::kChunk));
}

TEST(gdn_step, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const GdnOp op : kMistakes) {
    wrong.gdn_step = op;
    EXPECT_TRUE(any_case_rejects(gdn_step_cases, check_values, wrong)) << &op - kMistakes;
  }
}

TEST(gdn_chunk, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const GdnOp op : kMistakes) {
    wrong.gdn_chunk = op;
    EXPECT_TRUE(any_case_rejects(plain_chunk_cases, check_values, wrong)) << &op - kMistakes;
  }
  wrong.gdn_chunk = twin_op<GdnMistake::kNone>;
  EXPECT_TRUE(any_case_rejects(gdn_chunk_cases, check_values, wrong)) << "checkpoint not written";
}

/// The twin without a mistake passes: so what the controls reject is the mistake.
TEST(gdn_step, AnIndependentRecurrenceAgrees) {
  OpTable twin = ref_ops();
  twin.gdn_step = twin_op<GdnMistake::kNone>;
  expect_all(gdn_step_cases, check_values, {&twin});
}

TEST(gdn_chunk, TheRecurrenceAgrees) {
  OpTable twin = ref_ops();
  twin.gdn_chunk = twin_op<GdnMistake::kNone>;
  expect_all(plain_chunk_cases, check_values, {&twin});
}

void gates_without_softplus(const GdnGatesArgs& args, OpContext& context) {
  ref_ops().gdn_gates(args, context);
  for (int64_t h = 0; h < args.a.num_cols; ++h) {
    const auto n = static_cast<size_t>(h);
    const float dt = to_float(args.a.row(0)[h]) + args.dt_bias[n];
    args.g.row(0)[h] = -std::exp(args.A_log[n]) * std::max(dt, 0.0f);
  }
}

void gates_with_wide_beta(const GdnGatesArgs& args, OpContext& context) {
  ref_ops().gdn_gates(args, context);
  for (int64_t h = 0; h < args.b.num_cols; ++h) {
    args.beta.row(0)[h] = 1.0f / (1.0f + std::exp(-to_float(args.b.row(0)[h])));
  }
}

TEST(gdn_gates, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const auto op : {gates_without_softplus, gates_with_wide_beta}) {
    wrong.gdn_gates = op;
    EXPECT_TRUE(any_case_rejects(gdn_gates_cases, check_values, wrong));
  }
}

}  // namespace
}  // namespace sluice
