#pragma once
// Random weights, counter-based: an element depends on (seed, tensor name, its index) and on nothing else, so any
// thread may make any part.

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bf16.h"
#include "base/random_values.h"

namespace sluice {

/// Mixes a seed and a name into a tensor's key.
uint64_t tensor_key(uint64_t seed, std::string_view name);

/// out[i] = bf16(mean + sigma * normal) for elements first + i.
void fill_normal(uint64_t key, uint64_t first, float mean, float sigma, std::span<bf16> out);

/// One band of up to 128 rows of a block-FP8 weight ~ N(0, sigma): codes row-major, one scale per 128 columns. Each
/// block's scale is bf16(amax / 448), so that its largest code is 448, as in the published files.
/// `scratch` holds one value per code.
void fill_fp8_band(uint64_t key, uint64_t first, int64_t num_rows, int64_t num_cols, float sigma,
                   std::span<float> scratch, std::span<uint8_t> codes, std::span<bf16> scales);

/// Equals float_to_e4m3 for every x but NaN. Without branches, so that loops over it vectorise: a 27B takes 25 G of them.
inline uint8_t quantise_e4m3(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  constexpr int32_t kMax = 0x43e00000;             // 448
  constexpr int32_t kSmallestNormal = 0x3c800000;  // 2^-6
  auto magnitude = static_cast<int32_t>(bits & 0x7fffffffu);
  magnitude = magnitude > kMax ? kMax : magnitude;
  // Adding 2^14 aligns the last mantissa bit with 2^-9, the subnormal step, and rounds to even.
  const float aligned = std::bit_cast<float>(magnitude) + 0x1p14f;
  const auto subnormal = static_cast<int32_t>(std::bit_cast<uint32_t>(aligned) & 0xffu);
  const int32_t rounded = magnitude + 0x7ffff + ((magnitude >> 20) & 1);
  const int32_t normal = (rounded >> 20) - (120 << 3);
  const int32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  return static_cast<uint8_t>(sign | static_cast<uint32_t>(code));
}

}  // namespace sluice
