#pragma once
// Element functions written so that compilers vectorise a loop over them: no branches, no libm, and the same bits for
// every vector width (an element depends on itself only, and nothing is contracted).
//
// Internal linkage on purpose: each instruction set compiles its own copy.

#include <bit>
#include <cstdint>

#include "base/bf16.h"

namespace sluice {
namespace {

/// to_bf16 without the branch.
inline bf16 vec_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (u >> 16) | 0x40u;
  return bf16{static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

inline float vec_rb(float x) {
  return std::bit_cast<float>(static_cast<uint32_t>(vec_bf16(x).bits) << 16);
}

/// e^x within 2 ulp for |x| <= 87; beyond, the value at +-87 (so never 0, subnormal or infinite). NaN gives a number:
/// callers multiply by something that keeps it.
inline float vec_exp(float x) {
  constexpr float kLog2e = 1.44269504f;
  // ln 2 in two parts: n * kLn2High is exact for the n that occur (Cody and Waite).
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  // Adding and taking away 1.5 * 2^23 rounds to an integer.
  constexpr float kRound = 12582912.0f;
  x = x < 87.0f ? x : 87.0f;
  x = x > -87.0f ? x : -87.0f;
  const float n = (x * kLog2e + kRound) - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  // Minimax for (e^r - 1 - r) / r^2 on +-ln2/2 (Cephes expf).
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float e = (p * (r * r) + r) + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n) + 127;
  return e * std::bit_cast<float>(exponent << 23);
}

inline float vec_sigmoid(float x) {
  return 1.0f / (1.0f + vec_exp(-x));
}
inline float vec_silu(float x) {
  return x / (1.0f + vec_exp(-x));
}

}  // namespace
}  // namespace sluice
