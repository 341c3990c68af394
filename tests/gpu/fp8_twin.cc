#include "tests/gpu/fp8_twin.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/random_values.h"
#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/packed.h"

namespace sluice {
namespace {

constexpr int kCodes = 127;  // not negative, not NaN

}  // namespace

float widen_e4m3(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  float x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
  if ((code & 127) == 127) x = NAN;
  return code >> 7 != 0 ? -x : x;
}

uint8_t narrow_e4m3(float x) {
  if (std::isnan(x)) return 0x7f;
  static const auto values = [] {
    std::array<float, kCodes> all{};
    for (int i = 0; i < kCodes; ++i)
      all[static_cast<size_t>(i)] = widen_e4m3(static_cast<uint8_t>(i));
    return all;
  }();
  const float size = std::min(std::fabs(x), values.back());
  // The first code that is not below; the one before it where that is nearer, or as near and even.
  auto code =
      static_cast<int>(std::lower_bound(values.begin(), values.end(), size) - values.begin());
  if (code > 0) {
    const float above = values[static_cast<size_t>(code)] - size;
    const float below = size - values[static_cast<size_t>(code - 1)];
    if (below < above || (below == above && code % 2 != 0)) --code;
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

double Quantised::value(int m, int k) const {
  const float scale =
      scales[static_cast<size_t>(k / cuda::kScaleBlock) * static_cast<size_t>(num_rows) +
             static_cast<size_t>(m)];
  return 16.0 * static_cast<double>(scale) *
         static_cast<double>(
             widen_e4m3(codes[static_cast<size_t>(m) * static_cast<size_t>(num_cols) +
                              static_cast<size_t>(k)]));
}

Quantised quantise(const std::vector<bf16>& values, int num_rows, int num_cols) {
  Quantised out{num_rows, num_cols, std::vector<uint8_t>(values.size()),
                std::vector<float>(values.size() / cuda::kScaleBlock)};
  for (int m = 0; m < num_rows; ++m) {
    for (int first = 0; first < num_cols; first += cuda::kScaleBlock) {
      const size_t at =
          static_cast<size_t>(m) * static_cast<size_t>(num_cols) + static_cast<size_t>(first);
      float bound = 0x1p-64f;
      for (size_t k = 0; k < cuda::kScaleBlock; ++k)
        bound = std::max(bound, std::fabs(to_float(values[at + k])));
      const float inverse = 448.0f / bound;
      for (size_t k = 0; k < cuda::kScaleBlock; ++k)
        out.codes[at + k] = narrow_e4m3(to_float(values[at + k]) * inverse);
      out.scales[static_cast<size_t>(first / cuda::kScaleBlock) * static_cast<size_t>(num_rows) +
                 static_cast<size_t>(m)] = bound / 448.0f * 0.0625f;
    }
  }
  return out;
}

QuantisedMatch match_quantised(std::span<const uint16_t> operands, int num_rows, int num_cols,
                               std::span<const uint8_t> codes, std::span<const float> scales,
                               int scale_stride) {
  constexpr float kExact =
      0x1p-12f;  // below 2^-13 not all are (packed.h), and rounded they may lie at it
  std::vector<bf16> values(operands.size());
  const auto at = [&](int m, int k) {
    return static_cast<size_t>(m) * static_cast<size_t>(num_cols) + static_cast<size_t>(k);
  };
  for (int m = 0; m < num_rows; ++m) {
    for (int k = 0; k < num_cols; ++k) {
      const auto half = std::bit_cast<_Float16>(operands[at(m, cuda::operand_place(k))]);
      values[at(m, k)] = to_bf16(16.0f * static_cast<float>(half));
    }
  }
  const Quantised wanted = quantise(values, num_rows, num_cols);
  QuantisedMatch match;
  for (int m = 0; m < num_rows; ++m) {
    for (int k = 0; k < num_cols; ++k) {
      if (!(std::fabs(to_float(values[at(m, k)])) >= kExact)) continue;  // nor poison
      ++match.num_compared;
      const float scale = scales[static_cast<size_t>(k / cuda::kScaleBlock * scale_stride + m)];
      const bool is_right =
          codes[at(m, cuda::fp8_operand_place(k))] == wanted.codes[at(m, k)] &&
          scale == wanted.scales[static_cast<size_t>(k / cuda::kScaleBlock * num_rows + m)];
      match.num_wrong += is_right ? 0 : 1;
    }
  }
  return match;
}

double Fp8Weight::value(int n, int k) const {
  const int blocks = num_in / cuda::kScaleBlock;
  const float scale =
      scales[static_cast<size_t>(n / cuda::kScaleBlock * blocks + k / cuda::kScaleBlock)];
  return static_cast<double>(scale) *
         static_cast<double>(widen_e4m3(
             codes[static_cast<size_t>(n) * static_cast<size_t>(num_in) + static_cast<size_t>(k)]));
}

std::vector<uint8_t> Fp8Weight::packed() const {
  const int num_groups = (num_out + cuda::kRowGroup - 1) / cuda::kRowGroup;
  std::vector<uint8_t> out(
      static_cast<size_t>(num_groups) * cuda::kRowGroup * static_cast<size_t>(num_in), 0);
  for (int n = 0; n < num_out; ++n) {
    for (int k = 0; k < num_in; ++k) {
      const size_t block = static_cast<size_t>(n / 8) * static_cast<size_t>(num_in / 64) +
                           static_cast<size_t>(k / 64);
      const int word = k % 64 / 32 * 2 + k % 8 / 4;
      out[block * 512 + static_cast<size_t>((n % 8 * 4 + k % 32 / 8) * 16 + word * 4 + k % 4)] =
          codes[static_cast<size_t>(n) * static_cast<size_t>(num_in) + static_cast<size_t>(k)];
    }
  }
  return out;
}

std::vector<float> Fp8Weight::packed_scales() const {
  std::vector<float> out = scales;
  for (float& scale : out) scale *= 1 << cuda::kActivationShift;
  return out;
}

Fp8Weight random_fp8_weight(int num_out, int num_in, uint64_t key) {
  const auto count = static_cast<size_t>(num_out) * static_cast<size_t>(num_in);
  const auto num_blocks = static_cast<size_t>((num_out + 127) / 128 * (num_in / 128));
  Fp8Weight w{num_out, num_in, std::vector<uint8_t>(count), std::vector<float>(num_blocks)};
  for (size_t i = 0; i < count; ++i) w.codes[i] = narrow_e4m3(random_normal(key, i) * 125.0f);
  // bf16 values, as published.
  for (size_t i = 0; i < num_blocks; ++i)
    w.scales[i] = to_float(to_bf16(1e-4f * (1.0f + random_uniform(key + 1, i))));
  return w;
}

double exact_product(const Quantised& x, int m, const Fp8Weight& w, int n) {
  double sum = 0.0;
  for (int k = 0; k < x.num_cols; ++k) sum += x.value(m, k) * w.value(n, k);
  return sum;
}

}  // namespace sluice
