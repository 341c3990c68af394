#include "tests/ops/op_cases.h"

namespace sluice {
namespace {

// One flip of the chain's inner roundings moves the last one by a step or two; none may be missing.
constexpr Tolerance kOneRounding{.ulps = 1, .mismatch = 0.002};
constexpr Tolerance kThreeRoundings{.ulps = 2, .mismatch = 0.01};

struct NormCase {
  int64_t rows;
  int64_t hidden;
  double magnitude = 1.0;
  int64_t pad = 0;
  bool in_place = false;
};

OpCase rms_norm_case(const NormCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows * 10'000 + p.hidden));
  OpCase c{.name = fmt::format("rows={} hidden={} magnitude={} pad={} in_place={}", p.rows,
                               p.hidden, p.magnitude, p.pad, p.in_place)};
  const auto activation = [&] { return p.magnitude * rng.normal(); };
  const auto x = c.world.filled<bf16>("x", p.rows, p.hidden, activation, p.pad);
  const auto w = c.world.filled<float>("weight", 1, p.hidden, [&] { return 0.2 * rng.normal(); });
  const auto out = p.in_place ? x : c.world.add<bf16>("out", p.rows, p.hidden, p.pad);
  for (int64_t r = 0; r < p.rows; ++r) c.world.allow_writes(out, r, 0, p.hidden);
  c.world.tensors[out.index].tolerance = kOneRounding;
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.rms_norm({.x = window.rows(world.mat(x)),
                .weight = world.span(w),
                .out = window.rows(world.mat(out))},
               context);
  };
  return c;
}

struct GatedNormCase {
  int64_t rows;
  int64_t heads;
  int64_t head_dim = 128;
  double magnitude = 1.0;
  int64_t pad = 0;
};

OpCase gated_rms_norm_case(const GatedNormCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows * 10'000 + p.heads));
  OpCase c{.name = fmt::format("rows={} heads={} head_dim={} magnitude={} pad={}", p.rows, p.heads,
                               p.head_dim, p.magnitude, p.pad)};
  const int64_t width = p.heads * p.head_dim;
  const auto o = c.world.filled<bf16>(
      "o", p.rows, width, [&] { return p.magnitude * rng.normal(); }, p.pad);
  const auto z = c.world.filled<bf16>(
      "z", p.rows, width, [&] { return 2 * rng.normal(); }, p.pad);
  const auto w = c.world.filled<float>("weight", 1, p.head_dim, [&] {
    return static_cast<double>(rb(static_cast<float>(rng.uniform(0.2, 1.5))));
  });
  const auto out = c.world.output<bf16>("out", p.rows, width, kThreeRoundings, p.pad);
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.gated_rms_norm({.o = window.rows(world.mat(o)),
                      .z = window.rows(world.mat(z)),
                      .weight = world.span(w),
                      .out = window.rows(world.mat(out))},
                     context);
  };
  return c;
}

OpCase embed_case(int64_t rows, int64_t hidden) {
  constexpr int64_t kVocab = 37;
  Rng rng(static_cast<uint64_t>(rows));
  OpCase c{.name = fmt::format("rows={} hidden={}", rows, hidden)};
  const auto table = c.world.filled<bf16>(
      "table", kVocab, hidden, [&] { return rng.normal(); }, 3);
  const auto ids = c.world.filled<int32_t>("ids", 1, rows, [&] { return rng.below(kVocab); });
  c.world.data(ids)[0] = kVocab - 1;
  const auto out = c.world.output<bf16>("out", rows, hidden, {.ulps = 0, .mismatch = 0.0}, 5);
  c.runs = plain_rows(rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.embed({.table = world.mat(table),
             .token_ids = world.span(ids).subspan(static_cast<size_t>(window.first),
                                                  static_cast<size_t>(window.count)),
             .out = window.rows(world.mat(out))},
            context);
  };
  return c;
}

OP_CASES(rms_norm) {
  for (const int64_t rows : {1, 2, 3, 63, 64, 65, 130}) {
    cases.push_back(rms_norm_case({.rows = rows, .hidden = 384}));
  }
  for (const int64_t hidden : {1, 15, 16, 17, 1024, 5120}) {
    cases.push_back(rms_norm_case({.rows = 2, .hidden = hidden}));
  }
  cases.push_back(rms_norm_case({.rows = 3, .hidden = 1024, .pad = 3}));
  cases.push_back(rms_norm_case({.rows = 3, .hidden = 1024, .in_place = true}));
  // Mean squares around eps, and as large as a residual stream gets.
  cases.push_back(rms_norm_case({.rows = 3, .hidden = 1024, .magnitude = 1e-3}));
  cases.push_back(rms_norm_case({.rows = 3, .hidden = 1024, .magnitude = 0.0}));
  cases.push_back(rms_norm_case({.rows = 3, .hidden = 1024, .magnitude = 1e4}));
}

OP_CASES(gated_rms_norm) {
  for (const int64_t rows : {1, 2, 7, 65}) {
    cases.push_back(gated_rms_norm_case({.rows = rows, .heads = 16}));
  }
  cases.push_back(gated_rms_norm_case({.rows = 2, .heads = 48}));
  cases.push_back(gated_rms_norm_case({.rows = 3, .heads = 3, .head_dim = 24, .pad = 1}));
  cases.push_back(gated_rms_norm_case({.rows = 3, .heads = 4, .magnitude = 1e-3}));
}

OP_CASES(embed) {
  for (const int64_t rows : {1, 2, 40}) cases.push_back(embed_case(rows, 96));
  cases.push_back(embed_case(3, 5));
}

// ---- Negative controls: implementations that are wrong in one place.

void norm_without_one_plus(const RmsNormArgs& args, OpContext& context) {
  std::vector<float> w;
  for (const float x : args.weight) w.push_back(x - 1.0f);
  RmsNormArgs wrong = args;
  wrong.weight = w;
  ref_ops().rms_norm(wrong, context);
}

void norm_with_other_eps(const RmsNormArgs& args, OpContext& context) {
  RmsNormArgs wrong = args;
  wrong.eps = 1e-5f;
  ref_ops().rms_norm(wrong, context);
}

void norm_that_truncates(const RmsNormArgs& args, OpContext& context) {
  ref_ops().rms_norm(args, context);
  args.out.row(0)[0].bits ^= 2;
}

void norm_that_overruns(const RmsNormArgs& args, OpContext& context) {
  ref_ops().rms_norm(args, context);
  if (args.out.stride > args.out.num_cols) args.out.row(0)[args.out.num_cols] = bf16{};
}

void norm_that_sees_siblings(const RmsNormArgs& args, OpContext& context) {
  ref_ops().rms_norm(args, context);
  if (args.x.num_rows > 1) args.out.row(0)[0].bits ^= 1;
}

void norm_that_sees_threads(const RmsNormArgs& args, OpContext& context) {
  ref_ops().rms_norm(args, context);
  if (context.pool->num_threads() == 3) args.out.row(0)[0].bits ^= 1;
}

void norm_that_remembers(const RmsNormArgs& args, OpContext& context) {
  static int calls = 0;
  ref_ops().rms_norm(args, context);
  args.out.row(0)[0].bits ^= static_cast<uint16_t>(++calls % 2);
}

void gated_norm_gate_first(const GatedRmsNormArgs& args, OpContext& context) {
  GatedRmsNormArgs wrong = args;
  std::swap(wrong.o, wrong.z);
  ref_ops().gated_rms_norm(wrong, context);
}

/// One rounding at the end, as other engines do it.
void gated_norm_rounded_once(const GatedRmsNormArgs& args, OpContext&) {
  const auto dim = static_cast<int64_t>(args.weight.size());
  for (int64_t r = 0; r < args.o.num_rows; ++r) {
    for (int64_t c = 0; c < args.o.num_cols; ++c) {
      float sum = 0.0f;
      const bf16* head = args.o.row(r) + c / dim * dim;
      for (int64_t i = 0; i < dim; ++i) sum += to_float(head[i]) * to_float(head[i]);
      const float inv = 1.0f / std::sqrt(sum / static_cast<float>(dim) + args.eps);
      const float z = to_float(args.z.row(r)[c]);
      const float y = to_float(args.o.row(r)[c]) * inv * args.weight[static_cast<size_t>(c % dim)];
      args.out.row(r)[c] = to_bf16(y * z / (1.0f + std::exp(-z)));
    }
  }
}

TEST(rms_norm, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const auto op : {norm_without_one_plus, norm_with_other_eps, norm_that_truncates}) {
    wrong.rms_norm = op;
    EXPECT_TRUE(any_case_rejects(rms_norm_cases, check_values, wrong));
  }
  wrong.rms_norm = norm_that_overruns;
  EXPECT_TRUE(any_case_rejects(rms_norm_cases, check_untouched, wrong));
  wrong.rms_norm = norm_that_sees_siblings;
  EXPECT_TRUE(any_case_rejects(rms_norm_cases, check_row_identity, wrong));
  wrong.rms_norm = norm_that_sees_threads;
  EXPECT_TRUE(any_case_rejects(rms_norm_cases, check_thread_identity, wrong));
  wrong.rms_norm = norm_that_remembers;
  EXPECT_TRUE(any_case_rejects(rms_norm_cases, check_repeats, wrong));
}

TEST(gated_rms_norm, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const auto op : {gated_norm_gate_first, gated_norm_rounded_once}) {
    wrong.gated_rms_norm = op;
    EXPECT_TRUE(any_case_rejects(gated_rms_norm_cases, check_values, wrong));
  }
}

TEST(embed, ChecksRejectAnOffByOneRow) {
  OpTable wrong = ref_ops();
  wrong.embed = [](const EmbedArgs& args, OpContext& context) {
    std::vector<int32_t> ids;
    for (const int32_t id : args.token_ids) ids.push_back(std::max(0, id - 1));
    EmbedArgs other = args;
    other.token_ids = ids;
    ref_ops().embed(other, context);
  };
  EXPECT_TRUE(any_case_rejects(embed_cases, check_values, wrong));
}

}  // namespace
}  // namespace sluice
