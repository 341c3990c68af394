#pragma once
// Counter-based: a value depends on key and index alone, so any thread, of the host or a device, may make any part.

#include <cstdint>

#include "base/host_device.h"

namespace sluice {

/// 64 random bits of element `idx` (splitmix64 of a counter).
SLUICE_HOST_DEVICE inline uint64_t random_bits(uint64_t key, uint64_t idx) {
  uint64_t z = key + (idx + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// Mean 0, variance 1, |value| <= 3.47: the sum of the four 16-bit quarters. A normal's shape without its far tail,
/// at the price of one multiply-mix.
SLUICE_HOST_DEVICE inline float random_normal(uint64_t key, uint64_t idx) {
  const uint64_t bits = random_bits(key, idx);
  const auto sum = static_cast<int32_t>((bits & 0xffffu) + ((bits >> 16) & 0xffffu) +
                                        ((bits >> 32) & 0xffffu) + (bits >> 48));
  constexpr int32_t kMean = 2 * 0xffff;
  constexpr float kInverseSigma = 1.0f / 37837.2271f;  // sqrt(4 (2^32 - 1) / 12)
  return static_cast<float>(sum - kMean) * kInverseSigma;
}

/// In [0, 1).
SLUICE_HOST_DEVICE inline float random_uniform(uint64_t key, uint64_t idx) {
  return static_cast<float>(random_bits(key, idx) >> 40) * 0x1p-24f;
}

}  // namespace sluice
