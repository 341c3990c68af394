#pragma once
// The 16- and 8-bit number formats of the family, widened exactly and rounded to nearest even.

#include <bit>
#include <cstdint>

namespace sluice {

/// bfloat16: the upper half of an fp32.
struct bf16 {
  uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};
static_assert(sizeof(bf16) == 2);

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

/// Rounds to nearest, ties to even; NaN stays a (quiet) NaN.
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

/// The spec's rb(): fp32 rounded to bf16 and widened again.
inline float rb(float x) {
  return to_float(to_bf16(x));
}

/// IEEE half to fp32, exact.
float f16_to_float(uint16_t bits);

/// e4m3fn: 4 exponent bits (bias 7), 3 mantissa bits, max 448, no infinities, NaN = 0x7f / 0xff.
float e4m3_to_float(uint8_t bits);
/// Nearest even; values beyond 448 saturate; NaN gives 0x7f.
uint8_t float_to_e4m3(float x);
inline bool e4m3_is_nan(uint8_t bits) {
  return (bits & 0x7fu) == 0x7fu;
}

}  // namespace sluice
