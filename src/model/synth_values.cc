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

// to_bf16 without its NaN case, which keeps the loop from vectorising.
bf16 finite_to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return bf16{static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

// The bits of magnitudes order like the magnitudes, and an integer maximum is one the compiler may vectorise.
float band_absmax(const float* values, int64_t num_rows, int64_t num_cols, int64_t stride) {
  int32_t max_bits = 0;
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      const auto bits = std::bit_cast<int32_t>(std::fabs(values[row * stride + col]));
      max_bits = bits > max_bits ? bits : max_bits;
    }
  }
  return std::bit_cast<float>(max_bits);
}

void quantise_block(const float* values, int64_t num_rows, int64_t num_cols, int64_t stride,
                    float inverse_scale, uint8_t* codes) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t col = 0; col < num_cols; ++col) {
      codes[row * stride + col] = quantise_e4m3(values[row * stride + col] * inverse_scale);
    }
  }
}

}  // namespace

uint64_t tensor_key(uint64_t seed, std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

void fill_normal(uint64_t key, uint64_t first, float mean, float sigma, std::span<bf16> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = finite_to_bf16(mean + sigma * random_normal(key, first + i));
  }
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
