#pragma once
// Sixteen floats at a time, whatever the registers hold: one zmm, two ymm, or an array the compiler
// spreads over the baseline's registers. Kernels written over Vec give the same bits on AVX2 and
// AVX-512; the scalar form has no fused multiply-add and differs in last bits.
//
// Everything lies in the instruction set's own namespace: no function here may be shared between
// objects compiled for different sets.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bf16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Every object library names its namespace; a header read by itself has the baseline's.
#if !defined(SLUICE_CPU_NS)
#define SLUICE_CPU_NS cpu_scalar
#endif

namespace sluice::SLUICE_CPU_NS {

inline constexpr int64_t kLanes = 16;

#if defined(__AVX512F__)
#include "ops/cpu/vec_avx512.inc"
#elif defined(__AVX2__)
#include "ops/cpu/vec_avx2.inc"
#else
#include "ops/cpu/vec_scalar.inc"
#endif

inline Vec zero() {
  return broadcast(0.0f);
}

/// The first n lanes from memory, the others 0 (store: kept out).
template <typename T>
Vec load_first(const T* p, int64_t n) {
  T lanes[kLanes] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
template <typename T>
void store_first(T* p, Vec x, int64_t n) {
  T lanes[kLanes];
  store(lanes, x);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}

/// e^x within 1 ulp where x >= -87.3; below that 0, so that e^-inf is 0. x <= 88.
inline Vec exp(Vec x) {
  // x = n ln2 + r, |r| <= ln2 / 2; ln2 in two parts, the first exact times any n (Cody and Waite).
  const Vec n = round_nearest(mul(x, broadcast(1.44269504f)));
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  // Minimax for (e^r - 1 - r) / r^2 (Cephes expf).
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  const Vec e = add(fma(p, mul(r, r), r), broadcast(1.0f));
  return zero_below(scale_by_power_of_two(e, n), x, -87.3f);
}

inline Vec sigmoid(Vec x) {
  return div(broadcast(1.0f), add(broadcast(1.0f), exp(min(sub(zero(), x), broadcast(87.0f)))));
}
inline Vec silu(Vec x) {
  return mul(x, sigmoid(x));
}

}  // namespace sluice::SLUICE_CPU_NS
