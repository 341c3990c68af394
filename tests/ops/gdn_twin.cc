#include "tests/ops/gdn_twin.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

std::vector<double> unit(const bf16* x, int64_t n, GdnMistake mistake) {
  std::vector<double> out;
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<double>(to_float(x[i])));
    sum += out.back() * out.back();
  }
  double inv = 1.0 / std::sqrt(sum + 1e-6);
  if (mistake == GdnMistake::kEpsOnMean) {
    inv = 1.0 / std::sqrt(sum + 1e-6 * static_cast<double>(n));
  }
  if (mistake == GdnMistake::kNoL2Norm) inv = 1.0;
  for (double& v : out) v *= inv;
  return out;
}

/// S[i, j] of one head, or S[j, i] for the mistake that swaps them.
struct HeadState {
  double* data;
  int64_t dim_k, dim_v;
  bool transposed;
  double& at(int64_t i, int64_t j) const {
    return transposed ? data[j * dim_k + i] : data[i * dim_v + j];
  }
};

double advance_column(const GdnTwinRow& row, const HeadState& S, int64_t j, GdnMistake mistake) {
  const bool late_decay = mistake == GdnMistake::kDecayAfterUpdate;
  double memory = 0.0;
  double early = 0.0;
  for (int64_t i = 0; i < S.dim_k; ++i) {
    const auto n = static_cast<size_t>(i);
    if (!late_decay) S.at(i, j) *= row.decay;
    memory += S.at(i, j) * row.k[n];
    early += S.at(i, j) * row.q[n];
  }
  const bool late_beta = mistake == GdnMistake::kBetaOnOutput;
  const double d = (row.v[static_cast<size_t>(j)] - memory) * (late_beta ? 1.0 : row.beta);
  double o = 0.0;
  for (int64_t i = 0; i < S.dim_k; ++i) {
    const auto n = static_cast<size_t>(i);
    S.at(i, j) += row.k[n] * d;
    if (late_decay) S.at(i, j) *= row.decay;
    o += S.at(i, j) * row.q[n];
  }
  if (mistake == GdnMistake::kReadBeforeUpdate) return early;
  return late_beta ? o * row.beta : o;
}

}  // namespace

GdnTwinRow read_gdn_twin_row(const GdnArgs& args, int64_t row, int64_t h, GdnMistake mistake) {
  const GdnShape& s = args.shape;
  const int64_t key_head =
      mistake == GdnMistake::kKeyHeadModulo ? h % s.num_k_heads : h * s.num_k_heads / s.num_v_heads;
  const bf16* qkv = args.qkv.row(row);
  GdnTwinRow out;
  out.q = unit(qkv + key_head * s.head_k_dim, s.head_k_dim, mistake);
  out.k = unit(qkv + s.key_width() + key_head * s.head_k_dim, s.head_k_dim, mistake);
  const bf16* v = qkv + 2 * s.key_width() + h * s.head_v_dim;
  for (int64_t j = 0; j < s.head_v_dim; ++j) out.v.push_back(static_cast<double>(to_float(v[j])));
  if (mistake != GdnMistake::kQueryNotScaled) {
    for (double& x : out.q) x /= std::sqrt(static_cast<double>(s.head_k_dim));
  }
  out.g = static_cast<double>(args.g.row(row)[h]);
  out.decay = mistake == GdnMistake::kDecayNotExponentiated ? std::clamp(1.0 + out.g, 0.0, 1.0)
                                                            : std::exp(out.g);
  out.beta = static_cast<double>(args.beta.row(row)[h]);
  return out;
}

std::vector<double> gdn_twin_row(const GdnArgs& args, int64_t row, GdnState64& state,
                                 GdnMistake mistake) {
  const GdnShape& s = args.shape;
  std::vector<double> out;
  for (int64_t h = 0; h < s.num_v_heads; ++h) {
    const GdnTwinRow values = read_gdn_twin_row(args, row, h, mistake);
    const HeadState S{state.data() + h * s.head_k_dim * s.head_v_dim, s.head_k_dim, s.head_v_dim,
                      mistake == GdnMistake::kStateTransposed};
    for (int64_t j = 0; j < s.head_v_dim; ++j) {
      out.push_back(advance_column(values, S, j, mistake));
    }
  }
  return out;
}

void gdn_twin(const GdnArgs& args, GdnMistake mistake) {
  for (const RowRun& run : args.runs) {
    float* slot = args.state.slot(run.slot);
    GdnState64 state(slot, slot + args.shape.state_size());
    for (int64_t r = run.first_row; r < run.first_row + run.num_rows; ++r) {
      const std::vector<double> o = gdn_twin_row(args, r, state, mistake);
      for (size_t j = 0; j < o.size(); ++j) {
        args.o.row(r)[j] = to_bf16(static_cast<float>(o[j]));
      }
    }
    for (size_t i = 0; i < state.size(); ++i) slot[i] = static_cast<float>(state[i]);
  }
}

}  // namespace sluice
