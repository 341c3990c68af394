#include "tests/ops/op_cases.h"

namespace sluice {
namespace {

// fp32 sums in another order: now and then the last step of the rounding, and near a cancelled sum an error of the size
// of fp32's steps at the terms' size.
constexpr Tolerance kOneRounding{.ulps = 1, .floor = 2e-6, .mismatch = 0.01};
// The residual's sum may cancel what the linear rounded: its step is one of the larger addend.
constexpr Tolerance kResidual{.ulps = 1, .floor = 4e-3, .mismatch = 0.01};
// One flip of g or u moves the product by a step or two.
constexpr Tolerance kGateUp{.ulps = 3, .floor = 1e-5, .mismatch = 0.02};

constexpr WeightFormat kBf16 = WeightFormat::kBf16;
constexpr WeightFormat kFp8 = WeightFormat::kFp8Block128;

/// A weight inside a World.
struct StoredWeight {
  WeightFormat format = kBf16;
  TensorRef<bf16> values{};
  TensorRef<uint8_t> codes{};
  TensorRef<float> scales{};
  int64_t num_out = 0;
  int64_t num_in = 0;

  WeightView view(World& world) const {
    if (format == kBf16) return {kBf16, world.data(values), nullptr, num_out, num_in};
    return {kFp8, world.data(codes), world.data(scales), num_out, num_in};
  }
};

/// Every finite e4m3 code, subnormals and both zeros too.
int64_t finite_code(Rng& rng) {
  const int64_t code = rng.below(254);
  return code < 0x7f ? code : code + 1;
}

/// Codes as trained weights have them: nearly all normal. Kernels have a shorter way for runs of such.
int64_t usual_code(Rng& rng) {
  return rng.below(2) * 0x80 + 16 + rng.below(111);
}

StoredWeight add_weight(World& world, Rng& rng, std::string_view name, WeightFormat format,
                        int64_t num_out, int64_t num_in) {
  StoredWeight w{.format = format, .num_out = num_out, .num_in = num_in};
  if (format == kBf16) {
    w.values =
        world.filled<bf16>(std::string(name), num_out, num_in, [&] { return 0.05 * rng.normal(); });
    return w;
  }
  const int64_t blocks_out = (num_out + kFp8BlockSize - 1) / kFp8BlockSize;
  int64_t drawn = 0;
  w.codes = world.filled<uint8_t>(std::string(name), num_out, num_in, [&] {
    const bool any = drawn++ / num_in % 3 == 0;  // every third row
    return any ? finite_code(rng) : usual_code(rng);
  });
  w.scales = world.filled<float>(fmt::format("{}.scales", name), blocks_out, num_in / kFp8BlockSize,
                                 [&] { return rng.log_uniform(1e-5, 1e-2); });
  return w;
}

struct LinearCase {
  int64_t rows = 1;
  int64_t num_in = 128;
  std::vector<int64_t> num_outs = {40};
  WeightFormat format = kBf16;
  int64_t pad = 0;
  /// The last projection is of the other format, as in_proj_a and in_proj_b are in FP8 checkpoints.
  bool mixed = false;
};

std::string name_of(const LinearCase& p) {
  return fmt::format("{}{} rows={} num_in={} first num_out={} of {} pad={}",
                     p.format == kBf16 ? "bf16" : "fp8", p.mixed ? " mixed" : "", p.rows, p.num_in,
                     p.num_outs[0], p.num_outs.size(), p.pad);
}

OpCase linear_case(const LinearCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows * 10'000 + p.num_in));
  OpCase c{.name = name_of(p)};
  const auto x = c.world.filled<bf16>(
      "x", p.rows, p.num_in, [&] { return rng.normal(); }, p.pad);
  std::vector<StoredWeight> weights;
  std::vector<TensorRef<bf16>> outs;
  for (size_t i = 0; i < p.num_outs.size(); ++i) {
    const bool other = p.mixed && i + 1 == p.num_outs.size();
    const WeightFormat format = other != (p.format == kBf16) ? kBf16 : kFp8;
    weights.push_back(
        add_weight(c.world, rng, fmt::format("w{}", i), format, p.num_outs[i], p.num_in));
    outs.push_back(
        c.world.output<bf16>(fmt::format("out{}", i), p.rows, p.num_outs[i], kOneRounding, p.pad));
  }
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    std::vector<Projection> projections;
    for (size_t i = 0; i < weights.size(); ++i) {
      projections.push_back({weights[i].view(world), window.rows(world.mat(outs[i]))});
    }
    t.linear({.x = window.rows(world.mat(x)), .projections = projections}, context);
  };
  return c;
}

OpCase linear_residual_case(const LinearCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows * 10'000 + p.num_in));
  OpCase c{.name = name_of(p)};
  const auto x = c.world.filled<bf16>(
      "x", p.rows, p.num_in, [&] { return rng.normal(); }, p.pad);
  const StoredWeight w = add_weight(c.world, rng, "w", p.format, p.num_outs[0], p.num_in);
  const auto residual = c.world.filled<bf16>(
      "residual", p.rows, p.num_outs[0], [&] { return rng.normal(); }, p.pad);
  for (int64_t r = 0; r < p.rows; ++r) c.world.allow_writes(residual, r, 0, p.num_outs[0]);
  c.world.tensors[residual.index].tolerance = kResidual;
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.linear_residual({.x = window.rows(world.mat(x)),
                       .weight = w.view(world),
                       .residual = window.rows(world.mat(residual))},
                      context);
  };
  return c;
}

OpCase gate_up_case(const LinearCase& p) {
  Rng rng(static_cast<uint64_t>(p.rows * 10'000 + p.num_in));
  OpCase c{.name = name_of(p)};
  const auto x = c.world.filled<bf16>(
      "x", p.rows, p.num_in, [&] { return rng.normal(); }, p.pad);
  const StoredWeight gate = add_weight(c.world, rng, "gate", p.format, p.num_outs[0], p.num_in);
  const StoredWeight up =
      add_weight(c.world, rng, "up", p.mixed ? kBf16 : p.format, p.num_outs[0], p.num_in);
  const auto out = c.world.output<bf16>("out", p.rows, p.num_outs[0], kGateUp, p.pad);
  c.runs = plain_rows(p.rows);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    t.gate_up({.x = window.rows(world.mat(x)),
               .gate = gate.view(world),
               .up = up.view(world),
               .out = window.rows(world.mat(out))},
              context);
  };
  return c;
}

/// Shapes around the edges of the kernels' tiles: 16 outputs, 4, 8, 16 and 32 rows, 32 and 128 of k.
std::vector<LinearCase> shapes(WeightFormat format) {
  std::vector<LinearCase> all;
  for (int64_t rows = 1; rows <= 70; rows += rows < 18 ? 1 : 7) {
    all.push_back({.rows = rows, .num_in = 256, .num_outs = {33}, .format = format});
  }
  for (const int64_t rows : {31, 33, 63, 64, 65}) {
    all.push_back({.rows = rows, .num_in = 128, .num_outs = {49}, .format = format});
  }
  for (const int64_t num_out : {1, 6, 15, 16, 17, 31, 32, 127, 128, 129}) {
    all.push_back({.rows = 2, .num_in = 128, .num_outs = {num_out}, .format = format});
    all.push_back({.rows = 19, .num_in = 128, .num_outs = {num_out}, .format = format});
  }
  const int64_t step = format == kBf16 ? 32 : 128;
  for (const int64_t steps : {1, 2, 3, 5, 9}) {
    all.push_back({.rows = 1, .num_in = step * steps, .num_outs = {20}, .format = format});
    all.push_back({.rows = 18, .num_in = step * steps, .num_outs = {20}, .format = format});
  }
  return all;
}

/// What every one of the three ops is checked on.
std::vector<LinearCase> few_shapes(WeightFormat format) {
  return {
      {.rows = 1, .num_in = 3584, .num_outs = {40}, .format = format},
      {.rows = 3, .num_in = 256, .num_outs = {33}, .format = format, .pad = 3},
      {.rows = 16, .num_in = 128, .num_outs = {6}, .format = format},
      {.rows = 17, .num_in = 128, .num_outs = {33}, .format = format, .pad = 3},
      {.rows = 67, .num_in = 384, .num_outs = {260}, .format = format},
  };
}

OP_CASES(linear) {
  for (const WeightFormat format : {kBf16, kFp8}) {
    for (const LinearCase& p : shapes(format)) cases.push_back(linear_case(p));
    for (const LinearCase& p : few_shapes(format)) cases.push_back(linear_case(p));
    for (const int64_t rows : {1, 5, 17}) {
      cases.push_back(
          linear_case({.rows = rows, .num_in = 256, .num_outs = {64, 40, 6, 6}, .format = format}));
      cases.push_back(linear_case({.rows = rows,
                                   .num_in = 256,
                                   .num_outs = {64, 40, 6},
                                   .format = format,
                                   .pad = 8,
                                   .mixed = true}));
    }
  }
}

OP_CASES(linear_residual) {
  for (const WeightFormat format : {kBf16, kFp8}) {
    for (const LinearCase& p : few_shapes(format)) cases.push_back(linear_residual_case(p));
  }
}

OP_CASES(gate_up) {
  for (const WeightFormat format : {kBf16, kFp8}) {
    for (const LinearCase& p : few_shapes(format)) cases.push_back(gate_up_case(p));
  }
  cases.push_back(
      gate_up_case({.rows = 5, .num_in = 256, .num_outs = {40}, .format = kFp8, .mixed = true}));
}

/// Each projection on its own gets the bits it has in company.
TEST(linear, SiblingsDoNotMatter) {
  for (const WeightFormat format : {kBf16, kFp8}) {
    for (const int64_t rows : {1, 2, 16, 33}) {
      const OpCase together = linear_case({.rows = rows,
                                           .num_in = 256,
                                           .num_outs = {50, 33, 7, 16},
                                           .format = format,
                                           .mixed = true});
      OpCase apart = together;
      apart.call = [&](const OpTable& t, World& world, OpContext& context,
                       std::span<const RowRun> runs) {
        OpTable one_by_one = t;
        static const OpTable* inner;
        inner = &t;
        one_by_one.linear = [](const LinearArgs& args, OpContext& ctx) {
          for (const Projection& p : args.projections) inner->linear({args.x, {&p, 1}}, ctx);
        };
        together.call(one_by_one, world, context, runs);
      };
      for (const OpTable* backend : tested_backends()) {
        const Failure f = compare_bits(run_case(together, *backend), run_case(apart, *backend));
        EXPECT_FALSE(f.has_value()) << backend->name << ", " << together.name << ": " << *f;
      }
    }
  }
}

/// A NaN weight must be seen, not read as a number.
TEST(linear, NanCodesStayNan) {
  constexpr int64_t kRows = 3, kNumIn = 256, kNumOut = 20, kNanOut = 17;
  for (const uint8_t code : {uint8_t{0x7f}, uint8_t{0xff}}) {
    std::vector<bf16> x(kRows * kNumIn, to_bf16(1.0f)), out(kRows * kNumOut);
    std::vector<uint8_t> codes(kNumOut * kNumIn, 0x38);
    codes[kNanOut * kNumIn + 77] = code;
    const std::vector<float> scales(2, 1.0f);
    ThreadPool pool(1);
    Arena scratch = Arena::create(1 << 20, "scratch").value();
    OpContext context{&pool, &scratch};
    const Projection p{{kFp8, codes.data(), scales.data(), kNumOut, kNumIn},
                       {out.data(), kRows, kNumOut}};
    for (const OpTable* backend : tested_backends()) {
      backend->linear({.x = {x.data(), kRows, kNumIn}, .projections = {&p, 1}}, context);
      for (int64_t i = 0; i < kRows * kNumOut; ++i) {
        const float value = to_float(out[static_cast<size_t>(i)]);
        if (i % kNumOut == kNanOut) {
          EXPECT_TRUE(std::isnan(value)) << backend->name << " " << i;
        } else {
          EXPECT_EQ(value, 256.0f) << backend->name << " " << i;
        }
      }
    }
  }
}

TEST(linear, EveryInstructionSetIsCheckedOrNamed) {
  for (const CpuIsa isa :
       {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    if (!cpu_ops(isa).ok()) GTEST_SKIP() << "not checked here: " << cpu_ops(isa).status().message();
  }
}

// ---- Negative controls: implementations that are wrong in one place.

WeightView with_scales(const WeightView& w, std::vector<float>& scales, bool transpose) {
  if (w.format == kBf16) return w;
  const int64_t cols = w.scale_cols();
  const int64_t rows = (w.num_out + kFp8BlockSize - 1) / kFp8BlockSize;
  scales.resize(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t from = transpose ? i % rows * cols + i / rows : (i + 1) % (rows * cols);
    scales[static_cast<size_t>(i)] = w.scales[from];
  }
  WeightView wrong = w;
  wrong.scales = scales.data();
  return wrong;
}

void linear_with(const LinearArgs& args, OpContext& context, bool transpose) {
  std::vector<std::vector<float>> scales(args.projections.size());
  std::vector<Projection> wrong(args.projections.begin(), args.projections.end());
  for (size_t i = 0; i < wrong.size(); ++i)
    wrong[i].weight = with_scales(wrong[i].weight, scales[i], transpose);
  ref_ops().linear({args.x, wrong}, context);
}

void linear_scales_transposed(const LinearArgs& args, OpContext& context) {
  linear_with(args, context, true);
}
void linear_scales_shifted(const LinearArgs& args, OpContext& context) {
  linear_with(args, context, false);
}
/// Drops the last 32 of k, as a kernel with a wrong loop bound would.
void linear_short_sum(const LinearArgs& args, OpContext& context) {
  std::vector<bf16> x;
  for (int64_t r = 0; r < args.x.num_rows; ++r) {
    x.insert(x.end(), args.x.row(r), args.x.row(r) + args.x.num_cols - 32);
    x.resize(x.size() + 32);
  }
  ref_ops().linear({{x.data(), args.x.num_rows, args.x.num_cols}, args.projections}, context);
}
void linear_sees_siblings(const LinearArgs& args, OpContext& context) {
  ref_ops().linear(args, context);
  if (args.x.num_rows > 1) args.projections[0].out.row(0)[0].bits ^= 1;
}
void linear_overruns(const LinearArgs& args, OpContext& context) {
  ref_ops().linear(args, context);
  const MatView<bf16>& out = args.projections[0].out;
  if (out.stride > out.num_cols) out.row(0)[out.num_cols] = bf16{};
}

TEST(linear, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const auto op : {linear_scales_transposed, linear_scales_shifted, linear_short_sum}) {
    wrong.linear = op;
    EXPECT_TRUE(any_case_rejects(linear_cases, check_values, wrong));
  }
  wrong.linear = linear_sees_siblings;
  EXPECT_TRUE(any_case_rejects(linear_cases, check_row_identity, wrong));
  wrong.linear = linear_overruns;
  EXPECT_TRUE(any_case_rejects(linear_cases, check_untouched, wrong));
}

/// Rounds once at the end instead of after the linear.
void residual_rounded_once(const LinearResidualArgs& args, OpContext& context) {
  for (int64_t r = 0; r < args.x.num_rows; ++r) {
    for (int64_t n = 0; n < args.weight.num_out; ++n) {
      if (args.weight.format != kBf16) return ref_ops().linear_residual(args, context);
      double sum = 0.0;
      const bf16* w = static_cast<const bf16*>(args.weight.data) + n * args.weight.num_in;
      for (int64_t k = 0; k < args.weight.num_in; ++k) {
        sum +=
            static_cast<double>(to_float(args.x.row(r)[k])) * static_cast<double>(to_float(w[k]));
      }
      bf16& out = args.residual.row(r)[n];
      out = to_bf16(to_float(out) + static_cast<float>(sum));
    }
  }
}

TEST(linear_residual, ChecksRejectAMissingRounding) {
  OpTable wrong = ref_ops();
  wrong.linear_residual = residual_rounded_once;
  EXPECT_TRUE(any_case_rejects(linear_residual_cases, check_values, wrong));
}

TEST(gate_up, ChecksRejectSwappedHalves) {
  OpTable wrong = ref_ops();
  wrong.gate_up = [](const GateUpArgs& args, OpContext& context) {
    GateUpArgs swapped = args;
    std::swap(swapped.gate, swapped.up);
    ref_ops().gate_up(swapped, context);
  };
  EXPECT_TRUE(any_case_rejects(gate_up_cases, check_values, wrong));
}

}  // namespace
}  // namespace sluice
