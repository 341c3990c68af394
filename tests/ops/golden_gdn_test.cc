// The gated delta rule, chunk and one-token form, against the oracle's two functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/ops/golden_judge.h"
#include "tests/ops/golden_run.h"
#include "tests/ops/golden_set.h"

namespace sluice::golden {
namespace {

constexpr int64_t kStateRowStep = 16;  // record_ops.py keeps every 16th key row of a state
constexpr int64_t kHeadDim = 128;

const GoldenSet& set() {
  return GoldenSet::get();
}

struct Case {
  std::string name;
  int64_t num_k_heads = 2;
  int64_t num_v_heads = 6;
  bool from_state = false;
};

GdnInput input_of(const Case& c) {
  GdnShape shape;
  shape.num_k_heads = c.num_k_heads;
  shape.num_v_heads = c.num_v_heads;
  return {shape, set().bf16s(c.name + "/qkv"), set().floats(c.name + "/g"),
          set().floats(c.name + "/beta")};
}

Matrix<float> first_state(const Case& c) {
  Matrix<float> state(c.num_v_heads * kHeadDim, kHeadDim);
  if (c.from_state) state.values = set().floats(c.name + "/state_in").values;
  return state;
}

/// The rows of a state that were recorded.
Matrix<float> kept_rows(const Matrix<float>& state) {
  Matrix<float> out(state.num_rows / kStateRowStep, state.num_cols);
  for (int64_t r = 0; r < out.num_rows; ++r) {
    std::copy_n(state.row(r * kStateRowStep), state.num_cols, out.row(r));
  }
  return out;
}

Verdict judge_o(const Case& c, const Matrix<bf16>& o) {
  return check_error(c.name + "/o", widen(o));
}
// o is rounded once; its fp32 value differs in the last bits, which near-zero values magnify.
constexpr UlpLimit kOutputLimit{.mismatch_share = 0.002, .ulps = 1024};
Verdict judge_state(const Case& c, const Matrix<float>& state) {
  return check_error(c.name + "/state", kept_rows(state), kFloorF32);
}

const std::vector<Case>& chunk_cases() {
  static const std::vector<Case> cases = {
      {"gdn_chunk/t1"},
      {"gdn_chunk/t5"},
      {"gdn_chunk/t63"},
      {"gdn_chunk/t64"},
      {"gdn_chunk/t65"},
      {"gdn_chunk/t130"},
      {.name = "gdn_chunk/from64_t5", .from_state = true},
      {.name = "gdn_chunk/from64_t64", .from_state = true},
      {.name = "gdn_chunk/from64_t70", .from_state = true},
      {.name = "gdn_chunk/r1_t65", .num_v_heads = 2},
      {.name = "gdn_chunk/r2_t65", .num_v_heads = 4},
  };
  return cases;
}

TEST(GoldenGdnChunk, AgreesWithTheOracle) {
  for (const Case& c : chunk_cases()) {
    Matrix<float> state = first_state(c);
    const auto o = run_gdn_chunk(input_of(c), c.from_state ? 64 : 0, state);
    expect_agrees(judge_o(c, o));
    expect_agrees(check_ulps(c.name + "/o", widen(o), kOutputLimit));
    expect_agrees(judge_state(c, state));
  }
}

// The one-token form computes the same function: it must pass the chunk form's goldens too.
TEST(GoldenGdnStep, AgreesWithTheChunkFormsTruth) {
  for (const Case& c : chunk_cases()) {
    Matrix<float> state = first_state(c);
    const auto o = run_gdn_step(input_of(c), 0, state);
    expect_agrees(judge_o(c, o));
  }
}

TEST(GoldenGdnStep, AgreesWithTheOracle) {
  for (const Case& c : {Case{.name = "gdn_step/t8", .from_state = true},
                        Case{.name = "gdn_step/tiny", .from_state = true}}) {
    Matrix<float> state = first_state(c);
    const auto o = run_gdn_step(input_of(c), 0, state);
    expect_agrees(judge_o(c, o));
    expect_agrees(judge_state(c, state));
  }
}

// --- negative controls -------------------------------------------------------------------------

const Case kSteps{.name = "gdn_step/t8", .from_state = true};

void scale_state(Matrix<float>& state, const float* g) {
  for (int64_t r = 0; r < state.num_rows; ++r) {
    const float decay = std::exp(g[r / kHeadDim]);
    for (int64_t j = 0; j < state.num_cols; ++j) state.row(r)[j] *= decay;
  }
}

/// One row after another through `step`, which may change row and state around the op.
template <typename Step>
Matrix<bf16> row_by_row(const Case& c, Matrix<float>& state, Step step) {
  const GdnInput in = input_of(c);
  Matrix<bf16> o(in.qkv.num_rows, in.shape.value_width());
  for (int64_t r = 0; r < in.qkv.num_rows; ++r) {
    const Matrix<bf16> row = step(gdn_rows(in, r, 1), state);
    std::copy(row.values.begin(), row.values.end(), o.row(r));
  }
  return o;
}

TEST(GoldenGdnControls, RejectDecayAfterTheUpdate) {
  Matrix<float> state = first_state(kSteps);
  const auto o = row_by_row(kSteps, state, [](GdnInput row, Matrix<float>& S) {
    const Matrix<float> g = row.g;
    std::fill(row.g.values.begin(), row.g.values.end(), 0.0f);
    const auto out = run_gdn_step(row, 0, S);
    scale_state(S, g.row(0));
    return out;
  });
  expect_rejects("decay after the update (o)", judge_o(kSteps, o));
  expect_rejects("decay after the update (state)", judge_state(kSteps, state));
}

TEST(GoldenGdnControls, RejectBetaLeftOut) {
  GdnInput in = input_of(kSteps);
  std::fill(in.beta.values.begin(), in.beta.values.end(), 1.0f);
  Matrix<float> state = first_state(kSteps);
  expect_rejects("beta left out", judge_o(kSteps, run_gdn_step(in, 0, state)));
}

/// v heads, gates and state rows of head `order[i]` moved to place i.
template <typename T>
Matrix<T> reordered(const Matrix<T>& m, const std::vector<int64_t>& order, int64_t width,
                    int64_t offset = 0) {
  Matrix<T> out = m;
  for (int64_t r = 0; r < m.num_rows; ++r) {
    for (size_t i = 0; i < order.size(); ++i) {
      std::copy_n(m.row(r) + offset + order[i] * width, width,
                  out.row(r) + offset + static_cast<int64_t>(i) * width);
    }
  }
  return out;
}

TEST(GoldenGdnControls, RejectInterleavedHeads) {
  // Key head j mod 2 for value head j: what the right op computes when even heads come first.
  const std::vector<int64_t> order = {0, 2, 4, 1, 3, 5};
  const std::vector<int64_t> inverse = {0, 3, 1, 4, 2, 5};
  for (const Case& c : {Case{"gdn_chunk/t65"}, Case{"gdn_chunk/t1"}}) {
    GdnInput in = input_of(c);
    in.qkv = reordered(in.qkv, order, kHeadDim, 2 * in.shape.key_width());
    in.g = reordered(in.g, order, 1);
    in.beta = reordered(in.beta, order, 1);
    Matrix<float> state = first_state(c);
    const auto o = reordered(run_gdn_chunk(in, 0, state), inverse, kHeadDim);
    expect_rejects("key head j mod r, " + c.name, judge_o(c, o));
  }
}

TEST(GoldenGdnControls, RejectEpsOnTheMean) {
  // x * rsqrt(mean + eps) / sqrt(128) is the right op on x / sqrt(128).
  const Case c{.name = "gdn_step/tiny", .from_state = true};
  GdnInput in = input_of(c);
  for (int64_t r = 0; r < in.qkv.num_rows; ++r) {
    for (int64_t i = 0; i < 2 * in.shape.key_width(); ++i) {
      bf16& x = in.qkv.row(r)[i];
      x = to_bf16(to_float(x) / std::sqrt(128.0f));
    }
  }
  Matrix<float> state = first_state(c);
  expect_rejects("l2norm's eps on the mean", judge_o(c, run_gdn_step(in, 0, state)));
}

TEST(GoldenGdnControls, RejectAForgottenState) {
  for (const Case& c : chunk_cases()) {
    if (!c.from_state) continue;
    Matrix<float> state(c.num_v_heads * kHeadDim, kHeadDim);
    expect_rejects("cached state ignored, " + c.name,
                   judge_o(c, run_gdn_chunk(input_of(c), 64, state)));
  }
}

TEST(GoldenGdnControls, RejectABf16State) {
  Matrix<float> state = first_state(kSteps);
  const auto o = row_by_row(kSteps, state, [](const GdnInput& row, Matrix<float>& S) {
    const auto out = run_gdn_step(row, 0, S);
    for (float& x : S.values) x = rb(x);
    return out;
  });
  expect_rejects("state stored as bf16", judge_state(kSteps, state));
}

}  // namespace
}  // namespace sluice::golden
