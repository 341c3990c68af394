#include "model/synth_values.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/weight_view.h"

namespace sluice {
namespace {

constexpr float kE4m3Max = 448.0f;

float band_absmax(const float* values, int64_t num_rows, int64_t num_cols, int64_t stride) {
  float amax = 0.0f;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      amax = std::max(amax, std::fabs(values[row * stride + col]));
    }
  }
  return amax;
}

void quantise_block(const float* values, int64_t num_rows, int64_t num_cols, int64_t stride,
                    float inverse_scale, uint8_t* codes) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      const float scaled = values[row * stride + col] * inverse_scale;
      codes[row * stride + col] = quantise_e4m3(std::clamp(scaled, -kE4m3Max, kE4m3Max));
    }
  }
}

}  // namespace

uint64_t tensor_key(uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

void fill_normal(uint64_t key, uint64_t first, float mean, float sigma, std::span<bf16> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = to_bf16(mean + sigma * random_normal(key, first + i));
  }
}

uint8_t quantise_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  constexpr uint32_t kSmallestNormal = 121u << 23;  // 2^-6
  if (magnitude < kSmallestNormal) {
    // Adding 2^14 aligns the last mantissa bit with 2^-9, the subnormal step, and rounds to even.
    const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(aligned) & 0xffu));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

void fill_fp8_band(uint64_t key, uint64_t first, int64_t num_rows, int64_t num_cols, float sigma,
                   std::span<float> scratch, std::span<uint8_t> codes, std::span<bf16> scales) {
  const auto count = static_cast<size_t>(num_rows * num_cols);
  SLUICE_CHECK(scratch.size() >= count && codes.size() >= count);
  for (size_t i = 0; i < count; ++i) scratch[i] = sigma * random_normal(key, first + i);
  for (int64_t col = 0, block = 0; col < num_cols; col += kFp8BlockSize, ++block) {
    const int64_t width = std::min(kFp8BlockSize, num_cols - col);
    const float amax = band_absmax(scratch.data() + col, num_rows, width, num_cols);
    const bf16 scale = to_bf16(amax / kE4m3Max);
    scales[static_cast<size_t>(block)] = scale;
    const float inverse = amax > 0.0f ? 1.0f / to_float(scale) : 0.0f;
    quantise_block(scratch.data() + col, num_rows, width, num_cols, inverse, codes.data() + col);
  }
}

}  // namespace sluice
