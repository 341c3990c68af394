#include "tests/gpu/gdn_prefill_truth.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cuda/packed.h"

namespace sluice {
namespace {

constexpr int kDim = 128;
/// A SiLU below this may be zero: 1 / (1 + exp(-x)) has left the normal numbers.
constexpr double kVanishing = 0x1p-119;

float rounded(double x) {
  return to_float(to_bf16(static_cast<float>(x)));
}
double silu(double x) {
  return x / (1.0 + std::exp(-x));
}
/// Distance of neighbouring bf16 at x.
double bf16_step(double x) {
  return x == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(x) - 7);
}

double half_to_double(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  if (exponent == 31) return NAN;
  const double value =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (half & 0x8000) != 0 ? -value : value;
}

double rms(std::span<const double> x) {
  double squares = 0.0;
  for (const double v : x) squares += v * v;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

/// One value head's recurrence.
struct Head {
  const PrefillLayer& layer;
  std::span<const bf16> convolved;
  int head;
  std::vector<double> state = {};  // [k][v]

  int key_head() const { return head * layer.shape.num_k_heads / layer.shape.num_v_heads; }
  size_t gate_at(int row) const {
    return static_cast<size_t>(kPrefillRowsBefore + row) * layer.shape.num_v_heads + head;
  }
  void vector(int row, int channel, double (&out)[kDim]) const {
    const bf16* from = &convolved[static_cast<size_t>(row) * layer.num_channels() + channel];
    for (int i = 0; i < kDim; ++i) out[i] = to_float(from[i]);
  }
  static void normalise(double (&x)[kDim], double factor) {
    double squares = 0.0;
    for (const double v : x) squares += v * v;
    for (double& v : x) v *= factor / std::sqrt(squares + 1e-6);
  }
  double decay(int row) const {
    const double dt = static_cast<double>(to_float(layer.a[gate_at(row)])) + layer.dt_bias[head];
    const double softplus = dt > 20.0 ? dt : std::log1p(std::exp(dt));
    return std::exp(-std::exp(static_cast<double>(layer.A_log[head])) * softplus);
  }
  double beta(int row) const {
    return rounded(1.0 / (1.0 + std::exp(-static_cast<double>(to_float(layer.b[gate_at(row)])))));
  }

  void advance(int row, double (&o)[kDim]) {
    double q[kDim], k[kDim], v[kDim], error[kDim];
    const int k_heads = layer.shape.num_k_heads;
    vector(row, key_head() * kDim, q);
    vector(row, (k_heads + key_head()) * kDim, k);
    vector(row, (2 * k_heads + head) * kDim, v);
    normalise(q, 1.0 / std::sqrt(128.0));
    normalise(k, 1.0);
    const double alpha = decay(row);
    const double rate = beta(row);
    std::copy_n(v, kDim, error);
    for (int i = 0; i < kDim; ++i) {
      double* s = &state[static_cast<size_t>(i) * kDim];
      for (int j = 0; j < kDim; ++j) error[j] -= (s[j] *= alpha) * k[i];
    }
    std::fill_n(o, kDim, 0.0);
    for (int i = 0; i < kDim; ++i) {
      double* s = &state[static_cast<size_t>(i) * kDim];
      for (int j = 0; j < kDim; ++j) o[j] += (s[j] += rate * k[i] * error[j]) * q[i];
    }
  }
};

/// Worst difference of a head's state in a slot, by its rms.
double state_error(const PrefillLayer& layer, const PrefillResult& result, int slot, int head,
                   std::span<const double> truth) {
  const float* got =
      &result.state[slot * layer.state_stride() + static_cast<size_t>(head) * kDim * kDim];
  double worst = 0.0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double error = std::abs(got[i] - truth[i]);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  return worst / (rms(truth) + 1e-12);
}

struct RowJudge {
  const PrefillLayer& layer;
  const PrefillResult& result;
  int64_t num_flips = 0, num_values = 0;
  double worst = 0.0;

  /// o in fp64 to operands with the contract's roundings.
  void judge(int head, int row, const double (&o)[kDim]) {
    double values[kDim];
    double squares = 0.0;
    for (int i = 0; i < kDim; ++i) {
      values[i] = rounded(o[i]);
      squares += values[i] * values[i];
    }
    const double inverse = 1.0 / std::sqrt(squares / kDim + kPrefillEps);
    const size_t step_row = static_cast<size_t>(kPrefillRowsBefore + row);
    double truth[kDim];
    for (int i = 0; i < kDim; ++i) {
      const double z = to_float(layer.z[step_row * layer.width() + head * kDim + i]);
      const double y = rounded(layer.norm[i] * rounded(values[i] * inverse));
      truth[i] = rounded(y * silu(z));
    }
    const double floor = bf16_step(rms(truth)) / 16;
    for (int i = 0; i < kDim; ++i) {
      const size_t at = step_row * layer.width() + cuda::operand_place(head * kDim + i);
      const double got = half_to_double(result.operands[at]) * (1 << cuda::kActivationShift);
      const double error = std::abs(got - truth[i]);
      const double step = std::max({bf16_step(got), bf16_step(truth[i]), floor});
      worst = std::isfinite(error) ? std::max(worst, step == 0.0 ? 0.0 : error / step) : INFINITY;
      num_flips += error > 0.01 * step;
      ++num_values;
    }
  }
};

}  // namespace

PrefillErrors judge_prefill(const PrefillLayer& layer, std::span<const bf16> convolved,
                            const PrefillResult& result, std::span<const int> heads) {
  PrefillErrors errors;
  RowJudge rows = {layer, result};
  const int num_rows = layer.shape.num_rows;
  const int boundary = num_rows / static_cast<int>(kGdnChunk) * static_cast<int>(kGdnChunk);
  for (const int h : heads) {
    const float* first = &layer.state[static_cast<size_t>(h) * kDim * kDim];
    Head head = {layer, convolved, h, std::vector<double>(first, first + kDim * kDim)};
    for (int row = 0; row < num_rows; ++row) {
      double o[kDim];
      head.advance(row, o);
      rows.judge(h, row, o);
      if (row + 1 == boundary) {
        errors.checkpoint =
            std::max(errors.checkpoint, state_error(layer, result, 1, h, head.state));
      }
    }
    errors.state = std::max(errors.state, state_error(layer, result, 0, h, head.state));
  }
  errors.operand = rows.worst;
  errors.flips = static_cast<double>(rows.num_flips) / static_cast<double>(rows.num_values);
  return errors;
}

double judge_convolved(const PrefillLayer& layer, std::span<const bf16> convolved) {
  const int channels = layer.num_channels();
  const auto input = [&](int row, int channel) -> double {
    if (row >= 0) {
      return to_float(
          layer.qkv[static_cast<size_t>(kPrefillRowsBefore + row) * channels + channel]);
    }
    const int position = layer.shape.position + row;
    if (position < 0) return 0.0;
    return to_float(
        layer.ring[static_cast<size_t>(position % kConvRingColumns) * channels + channel]);
  };
  int64_t flips = 0;
  for (int row = 0; row < layer.shape.num_rows; ++row) {
    for (int c = 0; c < channels; ++c) {
      float sum = 0.0f;  // the contract's: fp32, oldest tap first
      for (int tap = 0; tap < kConvTaps; ++tap) {
        sum = std::fma(layer.conv_weight[static_cast<size_t>(c) * kConvTaps + tap],
                       static_cast<float>(input(row - 3 + tap, c)), sum);
      }
      const double truth = rounded(silu(rounded(sum)));
      const double got = to_float(convolved[static_cast<size_t>(row) * channels + c]);
      const double step = std::max({bf16_step(truth), bf16_step(got), kVanishing});
      if (!(std::abs(got - truth) <= step)) return INFINITY;
      flips += std::abs(got - truth) > kVanishing;
    }
  }
  return static_cast<double>(flips) / static_cast<double>(convolved.size());
}

std::vector<bf16> rings_behind(const PrefillLayer& layer) {
  std::vector<bf16> ring = layer.ring;
  const int channels = layer.num_channels();
  const auto keep = [&](int slot, int begin, int end) {
    for (int row = begin; row < end; ++row) {
      const auto column = static_cast<size_t>((layer.shape.position + row) % kConvRingColumns);
      std::copy_n(&layer.qkv[static_cast<size_t>(kPrefillRowsBefore + row) * channels], channels,
                  &ring[slot * layer.ring_stride() + column * channels]);
    }
  };
  const int num_rows = layer.shape.num_rows;
  const int boundary = num_rows / static_cast<int>(kGdnChunk) * static_cast<int>(kGdnChunk);
  if (boundary > 0) keep(1, boundary - static_cast<int>(kConvTaps) + 1, boundary);
  keep(0, std::max(0, num_rows - static_cast<int>(kConvRingColumns)), num_rows);
  return ring;
}

}  // namespace sluice
