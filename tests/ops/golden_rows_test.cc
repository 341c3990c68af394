// Row-wise ops and the convolution against the oracle: norms, linears, MLP, conv1d, gates.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/ops/golden_judge.h"
#include "tests/ops/golden_run.h"
#include "tests/ops/golden_set.h"

namespace sluice::golden {
namespace {

const GoldenSet& set() {
  return GoldenSet::get();
}

// Sums are fp32 in some order in the oracle and double here, so a value within that distance of a
// rounding boundary may fall to the other side.
constexpr UlpLimit kOneRounding{.mismatch_share = 0.001, .ulps = 1};
// A first rounding that falls to the other side moves what follows it.
constexpr UlpLimit kTwoRoundings{.mismatch_share = 0.001, .ulps = 2};

template <typename Change>
Matrix<float> changed(Matrix<float> m, Change change) {
  std::transform(m.values.begin(), m.values.end(), m.values.begin(), change);
  return m;
}

TEST(GoldenRmsNorm, AgreesWithTheOracle) {
  for (const std::string c : {"hidden384", "head256", "hidden5120", "tiny384"}) {
    const std::string name = "rms_norm/" + c;
    const auto out = run_rms_norm(set().bf16s(name + "/x"), set().floats(name + "/weight"));
    expect_agrees(check_ulps(name + "/out", widen(out), kOneRounding));
  }
}

TEST(GoldenRmsNorm, RejectsWrongForms) {
  const Matrix<float> w = set().floats("rms_norm/hidden384/weight");
  const Matrix<bf16> x = set().bf16s("rms_norm/hidden384/x");
  const auto judged = [&](const Matrix<float>& weight) {
    return check_ulps("rms_norm/hidden384/out", widen(run_rms_norm(x, weight)), kOneRounding);
  };
  expect_rejects("weight without the 1", judged(changed(w, [](float v) { return v - 1.0f; })));
  expect_rejects("1 + w rounded to bf16",
                 judged(changed(w, [](float v) { return rb(1.0f + v) - 1.0f; })));
  const auto eps_on_sum = run_rms_norm(set().bf16s("rms_norm/tiny384/x"),
                                       set().floats("rms_norm/tiny384/weight"), 1e-6f / 384.0f);
  expect_rejects("eps on the sum",
                 check_ulps("rms_norm/tiny384/out", widen(eps_on_sum), kOneRounding));
}

TEST(GoldenGatedRmsNorm, AgreesWithTheOracle) {
  for (const std::string c : {"heads6", "heads48", "tiny"}) {
    const std::string name = "gated_rms_norm/" + c;
    const auto out = run_gated_rms_norm(set().bf16s(name + "/o"), set().bf16s(name + "/z"),
                                        set().floats(name + "/weight"));
    expect_agrees(check_ulps(name + "/out", widen(out), kTwoRoundings));
  }
}

/// All in fp32 with one rounding, as fused kernels do it.
Matrix<float> gated_norm_rounded_once(const Matrix<bf16>& o, const Matrix<bf16>& z,
                                      const Matrix<float>& w) {
  constexpr int64_t kDim = 128;
  Matrix<float> out = widen(o);
  for (int64_t r = 0; r < o.num_rows; ++r) {
    for (int64_t at = 0; at < o.num_cols; at += kDim) {
      float sum = 0.0f;
      for (int64_t i = at; i < at + kDim; ++i) sum += out.row(r)[i] * out.row(r)[i];
      const float inv = 1.0f / std::sqrt(sum / kDim + 1e-6f);
      for (int64_t i = at; i < at + kDim; ++i) {
        const float gate = to_float(z.row(r)[i]);
        float& y = out.row(r)[i];
        y = rb(y * inv * w.row(0)[i - at] * (gate / (1.0f + std::exp(-gate))));
      }
    }
  }
  return out;
}

TEST(GoldenGatedRmsNorm, RejectsMissingRoundings) {
  const std::string name = "gated_rms_norm/heads6";
  expect_rejects("all in fp32", check_ulps(name + "/out",
                                           gated_norm_rounded_once(set().bf16s(name + "/o"),
                                                                   set().bf16s(name + "/z"),
                                                                   set().floats(name + "/weight")),
                                           kTwoRoundings));
}

TEST(GoldenGatedRmsNorm, RejectsWrongForms) {
  const std::string name = "gated_rms_norm/heads6";
  const Matrix<bf16> o = set().bf16s(name + "/o");
  const Matrix<bf16> z = set().bf16s(name + "/z");
  const Matrix<float> w = set().floats(name + "/weight");
  const auto judged = [&](const Matrix<bf16>& out) {
    return check_ulps(name + "/out", widen(out), kTwoRoundings);
  };
  expect_rejects("zero-centred weight",
                 judged(run_gated_rms_norm(o, z, changed(w, [](float v) { return v + 1.0f; }))));
  expect_rejects("gate and value swapped", judged(run_gated_rms_norm(z, o, w)));
  const std::string tiny = "gated_rms_norm/tiny";
  expect_rejects(
      "eps on the sum",
      check_ulps(tiny + "/out",
                 widen(run_gated_rms_norm(set().bf16s(tiny + "/o"), set().bf16s(tiny + "/z"),
                                          set().floats(tiny + "/weight"), 1e-6f / 128)),
                 kTwoRoundings));
}

TEST(GoldenLinear, AgreesWithTheOracle) {
  for (const std::string c : {"qkv", "down", "wide", "gates"}) {
    const std::string name = "linear/" + c;
    const Matrix<bf16> w = set().bf16s(name + "/weight");
    const auto out = widen(run_linear(set().bf16s(name + "/x"), weight_view(w)));
    expect_agrees(check_error(name + "/out", out));
    expect_agrees(check_ulps(name + "/out", out, {.mismatch_share = 0.002, .ulps = 64}));
  }
}

TEST(GoldenLinear, RejectsAColumnTooFar) {
  const Matrix<bf16> w = set().bf16s("linear/qkv/weight");
  Matrix<bf16> x = set().bf16s("linear/qkv/x");
  std::rotate(x.values.begin(), x.values.begin() + 1, x.values.end());
  expect_rejects("input one column off",
                 check_error("linear/qkv/out", widen(run_linear(x, weight_view(w)))));
}

struct Fp8Case {
  Matrix<bf16> x;
  Matrix<uint8_t> values;
  Matrix<float> scales;
  WeightView view() const {
    return {WeightFormat::kFp8Block128, values.values.data(), scales.values.data(), values.num_rows,
            values.num_cols};
  }
};
Fp8Case fp8_case(const std::string& name) {
  return {set().bf16s(name + "/x"), set().e4m3s(name + "/weight"),
          set().result(name + "/scale").matrix};
}

// The oracle rounds the dequantised weight to bf16; our function scales exact block sums, so it is
// nearer to the truth (spec 5.4, functions (b) and (c)).
TEST(GoldenLinearFp8, IsAtLeastAsNearTheTruthAsTheOracle) {
  for (const std::string c : {"k384", "k1024"}) {
    const std::string name = "linear_fp8/" + c;
    const Fp8Case fp8 = fp8_case(name);
    const auto out = widen(run_linear(fp8.x, fp8.view()));
    expect_agrees(check_error(name + "/out", out));
    Recorded truth = set().result(name + "/out.truth");
    for (float& v : truth.matrix.values) v = rb(v);
    truth.is_bf16 = true;
    expect_agrees(judge_ulps(truth, out, {.mismatch_share = 0.001, .ulps = 1}));
  }
}

TEST(GoldenLinearFp8, RejectsWrongScales) {
  const std::string name = "linear_fp8/k384";
  Fp8Case fp8 = fp8_case(name);
  const Matrix<float> scales = fp8.scales;
  fp8.scales = changed(scales, [](float s) { return 1.0f / s; });
  expect_rejects("scale divided", check_error(name + "/out", widen(run_linear(fp8.x, fp8.view()))));
  fp8.scales = scales;
  std::rotate(fp8.scales.values.begin(), fp8.scales.values.begin() + 1, fp8.scales.values.end());
  expect_rejects("scale of the next block",
                 check_error(name + "/out", widen(run_linear(fp8.x, fp8.view()))));
}

TEST(GoldenMlp, AgreesWithTheOracle) {
  const Matrix<bf16> gate = set().bf16s("mlp/gate_proj");
  const Matrix<bf16> up = set().bf16s("mlp/up_proj");
  const Matrix<bf16> down = set().bf16s("mlp/down_proj");
  const Matrix<bf16> x = set().bf16s("mlp/x");
  const auto product = run_gate_up(x, weight_view(gate), weight_view(up));
  // Two sums, an activation and a product, each rounded.
  const UlpLimit limit{.mismatch_share = 0.002, .ulps = 4};
  expect_agrees(check_ulps("mlp/product", widen(product), limit));
  const auto recorded = narrow(set().result("mlp/product").matrix);
  expect_agrees(check_ulps("mlp/out", widen(run_linear(recorded, weight_view(down))),
                           {.mismatch_share = 0.002, .ulps = 16}));
  expect_rejects(
      "gate and up swapped",
      check_ulps("mlp/product", widen(run_gate_up(x, weight_view(up), weight_view(gate))), limit));
}

TEST(GoldenConv1d, AgreesWithTheOracle) {
  for (const int tokens : {1, 3, 5, 70}) {
    const std::string name = "conv1d/prompt" + std::to_string(tokens);
    const auto out = run_conv1d(set().bf16s(name + "/x"), set().floats(name + "/weight"), {tokens});
    expect_agrees(check_ulps(name + "/out", widen(out), kTwoRoundings));
  }
}

TEST(GoldenConv1d, ContinuesAsTheOraclesCacheDoes) {
  const std::string name = "conv1d/update";
  const auto out =
      run_conv1d(set().bf16s(name + "/x"), set().floats(name + "/weight"), {5, 1, 1, 1, 1, 7});
  expect_agrees(check_ulps(name + "/out", widen(out), kTwoRoundings));
}

/// conv and SiLU with a single rounding, as fused kernels do it.
Matrix<float> conv_rounded_once(const Matrix<bf16>& x, const Matrix<float>& w) {
  Matrix<float> out(x.num_rows, x.num_cols);
  for (int64_t t = 0; t < x.num_rows; ++t) {
    for (int64_t ch = 0; ch < x.num_cols; ++ch) {
      float c = 0.0f;
      for (int64_t j = std::max<int64_t>(0, 3 - t); j < kConvTaps; ++j) {
        c += w.row(ch)[j] * to_float(x.row(t - 3 + j)[ch]);
      }
      out.row(t)[ch] = rb(c / (1.0f + std::exp(-c)));
    }
  }
  return out;
}

TEST(GoldenConv1d, RejectsAMissingRounding) {
  const std::string name = "conv1d/prompt70";
  expect_rejects(
      "conv and SiLU rounded once",
      check_ulps(name + "/out",
                 conv_rounded_once(set().bf16s(name + "/x"), set().floats(name + "/weight")),
                 kTwoRoundings));
}

TEST(GoldenConv1d, RejectsWrongForms) {
  const std::string name = "conv1d/prompt5";
  Matrix<float> w = set().floats(name + "/weight");
  for (int64_t ch = 0; ch < w.num_rows; ++ch) std::reverse(w.row(ch), w.row(ch) + kConvTaps);
  const Matrix<bf16> x = set().bf16s(name + "/x");
  expect_rejects("taps reversed",
                 check_ulps(name + "/out", widen(run_conv1d(x, w, {5})), kTwoRoundings));

  // Only the newest inputs are wrong in a continuation that forgets the cache.
  const std::string update = "conv1d/update";
  const Matrix<bf16> all = set().bf16s(update + "/x");
  const Matrix<float> taps = set().floats(update + "/weight");
  Matrix<bf16> forgetful = run_conv1d(all, taps, {16});
  Matrix<bf16> tail(7, all.num_cols);
  std::copy_n(all.row(9), tail.values.size(), tail.values.begin());
  const Matrix<bf16> restarted = run_conv1d(tail, taps, {7});
  std::copy(restarted.values.begin(), restarted.values.end(), forgetful.row(9));
  expect_rejects("continuation without the cache",
                 check_ulps(update + "/out", widen(forgetful), kTwoRoundings));
}

// g passes through fp32 exp, log1p and two products in the oracle.
constexpr UlpLimit kGateLimit{.mismatch_share = 1.0, .ulps = 4};

TEST(GoldenGdnGates, AgreesWithTheOracle) {
  for (const std::string c : {"heads6", "heads48", "extreme"}) {
    const std::string name = "gdn_gates/" + c;
    const Gates gates =
        run_gdn_gates(set().bf16s(name + "/a"), set().bf16s(name + "/b"),
                      set().floats(name + "/A_log"), set().floats(name + "/dt_bias"));
    expect_agrees(check_ulps(name + "/g", gates.g, kGateLimit));
    Recorded beta = set().result(name + "/beta");
    beta.is_bf16 = true;
    expect_agrees(judge_ulps(beta, gates.beta, {.mismatch_share = 0.03, .ulps = 1}));
  }
}

TEST(GoldenGdnGates, RejectsWrongForms) {
  const std::string name = "gdn_gates/heads6";
  const Matrix<bf16> a = set().bf16s(name + "/a");
  const Matrix<bf16> b = set().bf16s(name + "/b");
  const Matrix<float> A_log = set().floats(name + "/A_log");
  const Matrix<float> dt_bias = set().floats(name + "/dt_bias");
  const auto judged = [&](const Gates& gates) {
    return check_ulps(name + "/g", gates.g, kGateLimit);
  };
  expect_rejects("dt_bias left out",
                 judged(run_gdn_gates(a, b, A_log, changed(dt_bias, [](float) { return 0.0f; }))));
  expect_rejects("a and b swapped", judged(run_gdn_gates(b, a, A_log, dt_bias)));
  const auto bf16_sum = [&] {  // a + dt_bias rounded, as a bf16 addition would
    Matrix<bf16> sum = a;
    for (int64_t r = 0; r < a.num_rows; ++r) {
      for (int64_t h = 0; h < a.num_cols; ++h) {
        sum.row(r)[h] = to_bf16(to_float(a.row(r)[h]) + dt_bias.values[static_cast<size_t>(h)]);
      }
    }
    return sum;
  };
  expect_rejects(
      "a + dt_bias in bf16",
      judged(run_gdn_gates(bf16_sum(), b, A_log, changed(dt_bias, [](float) { return 0.0f; }))));
}

}  // namespace
}  // namespace sluice::golden
