// Whole layers and a four-layer model against the oracle: each op on the oracle's own input of that
// op, then chains of ops.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/ops/golden_judge.h"
#include "tests/ops/golden_layer.h"
#include "tests/ops/golden_set.h"

namespace sluice::golden {
namespace {

constexpr int32_t kPrompt = 70;  // then two tokens one by one

const GoldenSet& set() {
  return GoldenSet::get();
}

Matrix<bf16> recorded(const std::string& name) {
  return narrow(set().result("model/" + name).matrix);
}

/// Judges values that are already the recorded rows.
Verdict judged(const std::string& name, const Matrix<bf16>& ours, UlpLimit limit) {
  Recorded oracle = set().result("model/" + name);
  for (size_t i = 0; i < oracle.rows.size(); ++i) oracle.rows[i] = static_cast<int64_t>(i);
  return judge_ulps(oracle, widen(ours), limit);
}

Matrix<bf16> linear(const Matrix<bf16>& x, const std::string& name) {
  const Matrix<bf16> weight = set().bf16s("model/" + name + ".weight");
  return run_linear(x, weight_view(weight));
}

Matrix<bf16> embedded() {
  const Matrix<bf16> table = set().bf16s("model/embed_tokens.weight");
  std::vector<int64_t> rows;
  for (const int32_t id : set().ids("model/ids")) rows.push_back(id);
  return pick_rows(table, rows);
}

// Near-zero sums: an ulp there is far below the sum's own error.
constexpr UlpLimit kLinearLimit{.mismatch_share = 0.002, .ulps = 64};
constexpr UlpLimit kNormLimit{.mismatch_share = 0.001, .ulps = 1};

TEST(GoldenModelOps, EachOpAgreesOnTheOraclesInput) {
  for (const std::string layer : {"layers.0.", "layers.3."}) {
    const bool gdn = layer == "layers.0.";
    const Matrix<bf16> h = recorded(layer + "input_layernorm.out");
    const auto inputs =
        gdn ? std::vector<std::string>{"linear_attn.in_proj_qkv", "linear_attn.in_proj_z",
                                       "linear_attn.in_proj_a", "linear_attn.in_proj_b"}
            : std::vector<std::string>{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    for (const std::string& name : inputs) {
      expect_agrees(judged(layer + name + ".out", linear(h, layer + name), kLinearLimit));
    }
    const std::string out = gdn ? "linear_attn.out_proj" : "self_attn.o_proj";
    expect_agrees(judged(layer + out + ".out", linear(recorded(layer + out + ".in"), layer + out),
                         kLinearLimit));
    const std::string norm = layer + "post_attention_layernorm";
    expect_agrees(
        judged(norm + ".out",
               run_rms_norm(recorded(norm + ".in"), set().floats("model/" + norm + ".weight")),
               kNormLimit));
    const Matrix<bf16> gate = set().bf16s("model/" + layer + "mlp.gate_proj.weight");
    const Matrix<bf16> up = set().bf16s("model/" + layer + "mlp.up_proj.weight");
    expect_agrees(judged(layer + "mlp.down_proj.in",
                         run_gate_up(recorded(norm + ".out"), weight_view(gate), weight_view(up)),
                         {.mismatch_share = 0.002, .ulps = 4}));
    // The residual add rounds the rounded sum.
    const Matrix<bf16> down = set().bf16s("model/" + layer + "mlp.down_proj.weight");
    expect_agrees(judged(layer + "out",
                         run_linear_residual(recorded(layer + "mlp.down_proj.in"),
                                             weight_view(down), recorded(norm + ".in")),
                         {.mismatch_share = 0.002, .ulps = 4}));
  }
}

TEST(GoldenModelOps, GatesAndGatedNormAgreeOnTheOraclesInput) {
  const std::string mixer = "layers.0.linear_attn.";
  const Gates gates = run_gdn_gates(
      recorded(mixer + "in_proj_a.out"), recorded(mixer + "in_proj_b.out"),
      set().floats("model/" + mixer + "A_log"), set().floats("model/" + mixer + "dt_bias"));
  Recorded g = set().result("model/" + mixer + "g");
  Recorded beta = set().result("model/" + mixer + "beta");
  for (size_t i = 0; i < g.rows.size(); ++i) g.rows[i] = beta.rows[i] = static_cast<int64_t>(i);
  beta.is_bf16 = true;
  expect_agrees(judge_ulps(g, gates.g, {.mismatch_share = 1.0, .ulps = 4}));
  expect_agrees(judge_ulps(beta, gates.beta, {.mismatch_share = 0.03, .ulps = 1}));
  const auto normed =
      run_gated_rms_norm(recorded(mixer + "core_attn_out"), recorded(mixer + "in_proj_z.out"),
                         set().floats("model/" + mixer + "norm.weight"));
  expect_agrees(judged(mixer + "norm.out", normed, {.mismatch_share = 0.001, .ulps = 2}));
}

// One rounding that falls to the other side moves what follows: two bf16 ulps of a typical value.
constexpr double kChainDistance = 0x1p-7;

/// Intermediates by their distance from the oracle's, the layer's result by its distance from the
/// unrounded layer.
void expect_layer_agrees(const std::string& layer, const LayerRun& run) {
  for (const auto& [name, value] : run.trace) {
    const std::string full = "model/" + layer + name;
    if (!set().has(full)) continue;  // the golden set keeps the boundaries that hooks can see
    expect_agrees(judge_distance(set().result(full), widen(value), kChainDistance));
  }
  expect_agrees(check_error("model/" + layer + "out", widen(run.out)));
}

TEST(GoldenLayers, GdnLayerAgrees) {
  expect_layer_agrees("layers.0.", run_gdn_layer("model/layers.0.", embedded(), kPrompt));
}

TEST(GoldenLayers, AttentionLayerAgrees) {
  const Matrix<bf16> x = recorded("layers.3.in");
  expect_layer_agrees("layers.3.", run_attention_layer("model/layers.3.", x, kPrompt));
}

TEST(GoldenLayers, RejectWrongChains) {
  Matrix<bf16> x = embedded();
  const LayerRun swapped = run_gdn_layer("model/layers.1.", x, kPrompt);
  expect_rejects("another layer's weights", check_error("model/layers.0.out", widen(swapped.out)));
  x = recorded("layers.3.in");
  std::copy_n(x.row(0), x.num_cols, x.row(1));
  const LayerRun changed = run_attention_layer("model/layers.3.", x, kPrompt);
  expect_rejects("one earlier row changed", check_error("model/layers.3.out", widen(changed.out)));
}

TEST(GoldenModel, HiddenStateAndLogitsAgree) {
  Matrix<bf16> x = embedded();
  for (const std::string prefix : {"model/layers.0.", "model/layers.1.", "model/layers.2."}) {
    x = run_gdn_layer(prefix, x, kPrompt).out;
  }
  x = run_attention_layer("model/layers.3.", x, kPrompt).out;
  const Matrix<bf16> hidden = run_rms_norm(x, set().floats("model/norm.weight"));
  expect_agrees(check_error("model/hidden", widen(hidden)));
  const Matrix<bf16> head = set().bf16s("model/embed_tokens.weight");
  expect_agrees(check_error("model/logits", widen(run_linear(hidden, weight_view(head)))));
}

}  // namespace
}  // namespace sluice::golden
