#include "base/bf16.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {

float f16_to_float(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

float e4m3_to_float(uint8_t bits) {
  if (e4m3_is_nan(bits)) return std::numeric_limits<float>::quiet_NaN();
  const float sign = (bits & 0x80u) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 3) & 0xf;
  const int mantissa = bits & 0x7;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -9);
  return sign * std::ldexp(static_cast<float>(mantissa + 8), exponent - 10);
}

uint8_t float_to_e4m3(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0x00;
  const float magnitude = std::min(std::fabs(x), 448.0f);
  if (magnitude == 0.0f) return sign;
  int exponent = std::max(std::ilogb(magnitude), -6);
  // nearbyint rounds half to even in the default rounding mode; the quotient is exact.
  int mantissa = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  if (mantissa == 16) {
    mantissa = 8;
    ++exponent;
  }
  if (exponent > 8 || (exponent == 8 && mantissa > 14)) return static_cast<uint8_t>(sign | 0x7e);
  if (mantissa < 8) return static_cast<uint8_t>(sign | mantissa);  // subnormal, exponent is -6
  return static_cast<uint8_t>(sign | ((exponent + 7) << 3) | (mantissa - 8));
}

}  // namespace sluice
