#include "tests/ops/gdn_drift.h"

#include <algorithm>
#include <cmath>

#include "tests/ops/gdn_twin.h"

namespace sluice {
namespace {

constexpr int64_t kDim = 128;
constexpr int64_t kHeadSize = kDim * kDim;

bf16 after_silu(Rng& rng, double size) {
  const double x = rng.normal();
  return to_bf16(static_cast<float>(size * x / (1.0 + std::exp(-x))));
}

void fill_gates(GdnSequence& s, int64_t row, Rng& rng) {
  for (int64_t h = 0; h < s.shape.num_v_heads; ++h) {
    const GatePlan& plan = kGatePlans[h];
    const double decay = plan.decay_high > 0 ? rng.log_uniform(plan.decay_low, plan.decay_high) : 0;
    s.g_at(row, h) = static_cast<float>(-decay);
    s.beta_at(row, h) = rb(static_cast<float>(rng.uniform(plan.beta_low, plan.beta_high)));
  }
}

/// One row of one head, row-major: decay, read for the error, update, read for the output. Returns the
/// largest norm of a column times that of q.
double advance(const GdnTwinRow& row, double* S, double* o) {
  double memory[kDim] = {};
  for (int64_t i = 0; i < kDim; ++i) {
    const double k = row.k[static_cast<size_t>(i)];
    for (int64_t j = 0; j < kDim; ++j) memory[j] += S[i * kDim + j] * k;
  }
  double d[kDim];
  for (int64_t j = 0; j < kDim; ++j) {
    d[j] = row.beta * (row.v[static_cast<size_t>(j)] - row.decay * memory[j]);
  }
  double squares[kDim] = {};
  double q_square = 0.0;
  std::fill_n(o, kDim, 0.0);
  for (int64_t i = 0; i < kDim; ++i) {
    const double k = row.k[static_cast<size_t>(i)];
    const double q = row.q[static_cast<size_t>(i)];
    q_square += q * q;
    for (int64_t j = 0; j < kDim; ++j) {
      const double next = S[i * kDim + j] * row.decay + k * d[j];
      S[i * kDim + j] = next;
      o[j] += next * q;
      squares[j] += next * next;
    }
  }
  return std::sqrt(*std::max_element(squares, squares + kDim) * q_square);
}

/// The update never enlarges what is there: |exp(g) (I - beta k k^T)| <= 1. So the errors that rows make
/// add up, and, being roundings independent of each other, as squares. A row rounds every element
/// twice (decayed, updated) and the sum S^T k of 128 products in two chains; that error enters along k,
/// at most sqrt(64 / 3) roundings of a column's norm. Together about 5 roundings of the state's norm a
/// row, sqrt(n) times that after n rows. The chunk form makes 64 rows' worth in sums of 64 and 128.
double bound_of(int64_t rows) {
  return (8.0 + 5.0 * std::sqrt(static_cast<double>(rows))) * kF32Rounding;
}

}  // namespace

GdnSequence drift_sequence(int64_t num_rows, double qk) {
  GdnSequence s(kDriftShape, num_rows);
  Rng rng(static_cast<uint64_t>(num_rows));
  std::vector<double> common(kDim);
  std::ranges::generate(common, [&] { return rng.normal(); });
  for (int64_t t = 0; t < num_rows; ++t) {
    for (int64_t h = 0; h < s.shape.num_k_heads; ++h) {
      std::generate_n(s.q(t, h), kDim, [&] { return after_silu(rng, qk); });
      std::generate_n(s.k(t, h), kDim, [&] { return after_silu(rng, qk); });
    }
    for (int64_t i = 0; i < kDim; ++i) {
      const double x = common[static_cast<size_t>(i)] + 0.05 * rng.normal();
      s.k(t, 1)[i] = to_bf16(static_cast<float>(qk * x));
    }
    for (int64_t h = 0; h < s.shape.num_v_heads; ++h) {
      std::generate_n(s.v(t, h), kDim, [&] { return after_silu(rng, 1.0); });
    }
    fill_gates(s, t, rng);
  }
  return s;
}

DriftTruth::DriftTruth(const GdnSequence& sequence, const std::vector<int64_t>& marks)
    : shape_(sequence.shape),
      o_(static_cast<size_t>(sequence.num_rows * shape_.value_width())),
      scale_(static_cast<size_t>(sequence.num_rows * shape_.num_v_heads)) {
  const GdnArgs args = sequence.args(0, sequence.num_rows);
  std::vector<double> state(static_cast<size_t>(shape_.state_size()), 0.0);
  for (int64_t t = 0; t < sequence.num_rows; ++t) {
    for (int64_t h = 0; h < num_heads(); ++h) {
      const int64_t at = t * num_heads() + h;
      scale_[static_cast<size_t>(at)] = advance(
          read_gdn_twin_row(args, t, h), state.data() + h * kHeadSize, o_.data() + at * kDim);
    }
    if (std::ranges::find(marks, t + 1) != marks.end()) states_[t + 1] = state;
  }
}

Worst DriftTruth::state_error(int64_t position, std::span<const float> state) const {
  const std::vector<double>& truth = states_.at(position);
  Worst worst;
  for (int64_t h = 0; h < num_heads(); ++h) {
    double error = 0.0, error_max = 0.0, norm = 0.0, max = 0.0;
    for (int64_t i = h * kHeadSize; i < (h + 1) * kHeadSize; ++i) {
      const double t = truth[static_cast<size_t>(i)];
      const double e = std::abs(static_cast<double>(state[static_cast<size_t>(i)]) - t);
      error += e * e;
      norm += t * t;
      error_max = e > error_max ? e : error_max;
      max = std::max(max, std::abs(t));
    }
    const auto place = [&](const char* what) {
      return fmt::format("{} of the state after {} rows, {}", what, position, kGatePlans[h].name);
    };
    worst.see(std::sqrt(error / norm), bound_of(position), [&] { return place("norm"); });
    worst.see(error_max / max, bound_of(position), [&] { return place("largest value"); });
  }
  return worst;
}

Worst DriftTruth::output_error(int64_t first, int64_t last, const GdnSession& session) const {
  Worst worst;
  for (int64_t t = first; t < last; ++t) {
    for (int64_t c = 0; c < shape_.value_width(); ++c) {
      const int64_t at = t * shape_.value_width() + c;
      const double truth = o_[static_cast<size_t>(at)];
      const double scale = scale_[static_cast<size_t>(at / kDim)];
      const double error = distance(rounded_from(session.o(t)[c]), truth) / scale;
      worst.see(error, bound_of(t + 1),
                [&] { return fmt::format("output of row {}, {}", t, kGatePlans[c / kDim].name); });
    }
  }
  return worst;
}

}  // namespace sluice
