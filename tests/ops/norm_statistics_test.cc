// The mean square inside rms_norm and gated_rms_norm, against fp64. The ops do not show it, but eps is
// an argument: each eps moves the outputs' rounding boundaries past the mean square, so that an output
// says "above" or "below" like a comparator, and a ladder of eps closes in on it to some fp32 roundings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/ops/op_cases.h"
#include "tests/ops/statistic_judge.h"

namespace sluice {
namespace {

using Values = std::vector<bf16>;

/// out_i = rb(x_i * rsqrt(mean square + eps)), by one of the ops.
using Norm = Values (*)(const OpTable& table, const Values& x, float eps);

/// The vector is the middle one of three: neighbours must not enter.
constexpr int64_t kCopies = 3;

Values between_others(const Values& x) {
  Values all(x.size(), to_bf16(3.0f));
  all.insert(all.end(), x.begin(), x.end());
  all.insert(all.end(), x.size(), to_bf16(-700.0f));
  return all;
}

Values middle(const Values& all) {
  const auto n = static_cast<std::ptrdiff_t>(all.size()) / kCopies;
  return Values(all.begin() + n, all.begin() + 2 * n);
}

Values by_rms_norm(const OpTable& table, const Values& x, float eps) {
  const Values in = between_others(x);
  Values out(in.size());
  const std::vector<float> weight(x.size(), 0.0f);
  const auto width = static_cast<int64_t>(x.size());
  OpSession session(1);
  OpContext context = session.context();
  table.rms_norm({.x = {in.data(), kCopies, width},
                  .weight = weight,
                  .eps = eps,
                  .out = {out.data(), kCopies, width}},
                 context);
  return middle(out);
}

/// With weight 1 and z = 64 nothing else rounds: silu(64) is 64.
Values by_gated_rms_norm(const OpTable& table, const Values& x, float eps) {
  const Values in = between_others(x);
  const Values z(in.size(), to_bf16(64.0f));
  Values out(in.size());
  const std::vector<float> weight(x.size(), 1.0f);
  const auto width = static_cast<int64_t>(in.size());
  OpSession session(1);
  OpContext context = session.context();
  table.gated_rms_norm({.o = {in.data(), 1, width},
                        .z = {z.data(), 1, width},
                        .weight = weight,
                        .eps = eps,
                        .out = {out.data(), 1, width}},
                       context);
  for (bf16& y : out) y = to_bf16(to_float(y) / 64.0f);
  return middle(out);
}

struct NormInput {
  int64_t width;
  double magnitude;
  /// One channel of this size among the others; 0: none.
  double outlier = 0.0;
};

std::string name_of(const NormInput& in) {
  return fmt::format("width {}, magnitude {}{}", in.width, in.magnitude,
                     in.outlier > 0 ? fmt::format(", one channel {}", in.outlier) : "");
}

Values values_of(const NormInput& in) {
  Rng rng(static_cast<uint64_t>(in.width));
  Values x;
  for (int64_t i = 0; i < in.width; ++i) {
    const double sign = rng.below(2) == 0 ? 1.0 : -1.0;
    x.push_back(to_bf16(static_cast<float>(sign * in.magnitude * rng.log_uniform(0.1, 2.0))));
  }
  if (in.outlier > 0)
    x[static_cast<size_t>(in.width / 3)] = to_bf16(static_cast<float>(in.outlier));
  return x;
}

double square(double x) {
  return x * x;
}

double magnitude(bf16 x) {
  return std::abs(static_cast<double>(to_float(x)));
}

double mean_square(const Values& x) {
  double sum = 0.0;
  for (const bf16 v : x) sum += square(magnitude(v));
  return sum / static_cast<double>(x.size());
}

/// eps for which a boundary of x's output lies at mean squares of (1 + delta) `truth`: about a third of
/// the mean square, so that its own rounding costs little.
float eps_with_boundary_at(bf16 x, double truth, double delta) {
  const bf16 y = to_bf16(static_cast<float>(magnitude(x) / std::sqrt(1.35 * truth)));
  return static_cast<float>(square(magnitude(x) / rounded_from(y).high) - truth * (1.0 + delta));
}

/// Boundaries from 1 to 2^14 fp32 roundings on either side, and the eps of the model.
std::vector<float> ladder(const Values& x, double truth) {
  std::vector<float> all{1e-6f};
  for (double delta = kF32Rounding; delta < 0x1p-10; delta *= std::numbers::sqrt2) {
    for (const double signed_delta : {delta, -delta}) {
      all.push_back(eps_with_boundary_at(x[1], truth, signed_delta));
    }
  }
  return all;
}

/// After the sum: the division by n, the sum with eps (half of each reaches the root), the root, the
/// division, the product. Relative to mean square + eps.
constexpr double kAfterTheSum = 8 * kF32Rounding;

Bracket recover_mean_square(const OpTable& table, Norm norm, const Values& x, double truth) {
  Bracket bracket;
  for (const float eps : ladder(x, truth)) {
    const Values out = norm(table, x, eps);
    for (size_t i = 0; i < x.size(); ++i) {
      const Interval y = rounded_from(bf16{static_cast<uint16_t>(out[i].bits & 0x7fff)});
      const auto wide = static_cast<double>(eps);
      const Interval total{square(magnitude(x[i]) / y.high), square(magnitude(x[i]) / y.low)};
      bracket.narrow(
          {total.low * (1 - kAfterTheSum) - wide, total.high * (1 + kAfterTheSum) - wide}, 0.0);
    }
  }
  return bracket;
}

/// All terms have one sign, so a sum's relative error is at most a rounding per addition on a term's
/// way: width / 64 in its lane's chain, up to 4 more for a ragged end, 6 of the tree, 1 of the square
/// without fused multiply-add. Read through kAfterTheSum of 1.35 mean squares, both ends, and through
/// the ladder's steps of sqrt 2.
double bound_of(int64_t width) {
  const double sum = static_cast<double>(width) / 64 + 4 + 6 + 1;
  return std::numbers::sqrt2 * (sum * kF32Rounding + 2 * 1.35 * kAfterTheSum + kF32Rounding);
}

Worst check_mean_square(const OpTable& table, Norm norm, const std::vector<NormInput>& inputs) {
  Worst worst;
  for (const NormInput& in : inputs) {
    const Values x = values_of(in);
    const double truth = mean_square(x);
    const Bracket found = recover_mean_square(table, norm, x, truth);
    worst.see(found.farthest(truth), bound_of(in.width), [&] { return name_of(in); });
  }
  return worst;
}

std::vector<NormInput> inputs_of(std::initializer_list<int64_t> widths) {
  std::vector<NormInput> inputs;
  for (const int64_t width : widths) {
    for (const double size : {1e-4, 1e-2, 1.0, 1e2, 1e4}) inputs.push_back({width, size});
    inputs.push_back({width, 1.0, 3000.0});
    inputs.push_back({width, 1e-3, 0.5});
  }
  return inputs;
}

const std::vector<NormInput>& rms_inputs() {
  static const std::vector<NormInput> inputs = inputs_of({384, 1000, 5120});
  return inputs;
}
const std::vector<NormInput>& gated_inputs() {
  static const std::vector<NormInput> inputs = inputs_of({128});
  return inputs;
}

TEST(NormStatistics, MeanSquareIsFp32) {
  for (const OpTable* backend : with_ref(&OpTable::rms_norm)) {
    expect_within(fmt::format("rms_norm, {}", backend->name),
                  check_mean_square(*backend, by_rms_norm, rms_inputs()));
  }
}

TEST(NormStatistics, GatedMeanSquareIsFp32) {
  for (const OpTable* backend : with_ref(&OpTable::gated_rms_norm)) {
    expect_within(fmt::format("gated_rms_norm, {}", backend->name),
                  check_mean_square(*backend, by_gated_rms_norm, gated_inputs()));
  }
}

// ---- Negative controls

enum class NormMistake {
  kNone,
  kSquaresRounded,
  kSumRounded,
  kMeanRounded,
  kInverseRounded,
  kLastMissed,
  kEpsOnSum,
  kEpsOutside,
};

double inverse_rms(std::span<const bf16> x, float eps_argument, NormMistake mistake) {
  const size_t count = x.size() - (mistake == NormMistake::kLastMissed ? 1 : 0);
  const auto round_if = [&](NormMistake m, double v) {
    return mistake == m ? static_cast<double>(rb(static_cast<float>(v))) : v;
  };
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) {
    const double term = round_if(NormMistake::kSquaresRounded, square(magnitude(x[i])));
    sum = round_if(NormMistake::kSumRounded, sum + term);
  }
  const auto n = static_cast<double>(x.size());
  const auto eps = static_cast<double>(eps_argument);
  const double mean = round_if(NormMistake::kMeanRounded, sum / n);
  if (mistake == NormMistake::kEpsOnSum) return 1.0 / std::sqrt((sum + eps) / n);
  if (mistake == NormMistake::kEpsOutside) return 1.0 / (std::sqrt(mean) + eps);
  return round_if(NormMistake::kInverseRounded, 1.0 / std::sqrt(mean + eps));
}

template <NormMistake kMistake>
void wrong_rms_norm(const RmsNormArgs& args, OpContext&) {
  const auto width = static_cast<size_t>(args.x.num_cols);
  for (int64_t r = 0; r < args.x.num_rows; ++r) {
    const double inv = inverse_rms({args.x.row(r), width}, args.eps, kMistake);
    for (size_t i = 0; i < width; ++i) {
      args.out.row(r)[i] =
          to_bf16(static_cast<float>(static_cast<double>(to_float(args.x.row(r)[i])) * inv *
                                     (1.0 + static_cast<double>(args.weight[i]))));
    }
  }
}

template <NormMistake kMistake>
void wrong_gated_norm(const GatedRmsNormArgs& args, OpContext&) {
  const size_t dim = args.weight.size();
  for (int64_t c = 0; c < args.o.num_cols; c += static_cast<int64_t>(dim)) {
    const double inv = inverse_rms({args.o.row(0) + c, dim}, args.eps, kMistake);
    for (int64_t i = c; i < c + static_cast<int64_t>(dim); ++i) {
      const double n = static_cast<double>(to_float(args.o.row(0)[i])) * inv;
      args.out.row(0)[i] = to_bf16(rb(static_cast<float>(n)) * to_float(args.z.row(0)[i]));
    }
  }
}

template <NormMistake kMistake>
Worst check_wrong() {
  OpTable wrong = ref_ops();
  wrong.rms_norm = wrong_rms_norm<kMistake>;
  wrong.gated_rms_norm = wrong_gated_norm<kMistake>;
  const Worst worst = check_mean_square(wrong, by_rms_norm, inputs_of({384}));
  const Worst gated = check_mean_square(wrong, by_gated_rms_norm, gated_inputs());
  // Each op's check must see it.
  return gated.excess() < worst.excess() ? gated : worst;
}

TEST(NormStatistics, RejectsWrongOnes) {
  expect_within("no mistake", check_wrong<NormMistake::kNone>());
  expect_beyond("squares rounded to bf16", check_wrong<NormMistake::kSquaresRounded>());
  expect_beyond("sum kept in bf16", check_wrong<NormMistake::kSumRounded>());
  expect_beyond("mean rounded to bf16", check_wrong<NormMistake::kMeanRounded>());
  expect_beyond("inverse rounded to bf16", check_wrong<NormMistake::kInverseRounded>());
  expect_beyond("last element not summed", check_wrong<NormMistake::kLastMissed>());
  expect_beyond("eps on the sum", check_wrong<NormMistake::kEpsOnSum>());
  expect_beyond("eps outside the root", check_wrong<NormMistake::kEpsOutside>());
}

}  // namespace
}  // namespace sluice
