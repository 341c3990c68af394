#pragma once
// The vectors of linear_vec.cc for the instruction set being compiled, and the widening of FP8 codes.

#include <immintrin.h>

#include "ops/cpu/vec.h"

namespace sluice::SLUICE_CPU_NS {

#if defined(__AVX512BF16__)
constexpr int kLaneStep = 32;
constexpr int kRowGroup = 4;
using Lanes = __m512;
using Operand = __m512bh;
inline Operand load_operand(const bf16* p) {
  return (__m512bh)_mm512_loadu_si512(p);
}
inline Lanes multiply_add(Operand a, Operand b, Lanes sum) {
  return _mm512_dpbf16_ps(sum, a, b);
}
#elif defined(__AVX512F__)
constexpr int kLaneStep = 16;
constexpr int kRowGroup = 4;
using Lanes = __m512;
using Operand = __m512;
inline Operand load_operand(const bf16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Lanes multiply_add(Operand a, Operand b, Lanes sum) {
  return _mm512_fmadd_ps(a, b, sum);
}
#else
constexpr int kLaneStep = 8;
constexpr int kRowGroup = 2;  // 2 x 4 sums, 4 weights and an x fill the 16 registers
using Lanes = __m256;
using Operand = __m256;
inline Operand load_operand(const bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Lanes multiply_add(Operand a, Operand b, Lanes sum) {
  return _mm256_fmadd_ps(a, b, sum);
}
#endif

inline float sum_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#if defined(__AVX512F__)
inline Lanes zero_lanes() {
  return _mm512_setzero_ps();
}
inline Lanes add_scaled(Lanes part, float scale, Lanes sum) {
  return _mm512_fmadd_ps(part, _mm512_set1_ps(scale), sum);
}
inline float sum_lanes(__m512 v) {
  return sum_lanes(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
#else
inline Lanes zero_lanes() {
  return _mm256_setzero_ps();
}
inline Lanes add_scaled(Lanes part, float scale, Lanes sum) {
  return _mm256_fmadd_ps(part, _mm256_set1_ps(scale), sum);
}
#endif

inline void widen_e4m3_exact(const uint8_t* codes, int64_t count, bf16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bf16(e4m3_to_float(codes[i]));
}

/// bf16 of every e4m3 code, exact (NaN stays NaN). `count` is a multiple of 16.
/// A normal code is a shift and a larger exponent bias; the 16 codes that are not normal are rare in real weights and
/// send their vector through the slow path.
inline void widen_e4m3(const uint8_t* codes, int64_t count, bf16* out) {
  const __m128i exponent = _mm_set1_epi8(0x78), magnitude = _mm_set1_epi8(0x7f);
  const __m256i kept = _mm256_set1_epi16(static_cast<int16_t>(0x87f0));
  const __m256i bias = _mm256_set1_epi16((127 - 7) << 7);
  for (int64_t i = 0; i < count; i += 16) {
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i));
    const __m128i subnormal = _mm_cmpeq_epi8(_mm_and_si128(c, exponent), _mm_setzero_si128());
    const __m128i nan = _mm_cmpeq_epi8(_mm_and_si128(c, magnitude), magnitude);
    if (_mm_movemask_epi8(_mm_or_si128(subnormal, nan)) != 0) {
      widen_e4m3_exact(codes + i, 16, out + i);
      continue;
    }
    // Sign extension puts the sign at bit 15 after the shift.
    const __m256i shifted = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(c), 4), kept);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_add_epi16(shifted, bias));
  }
}

}  // namespace sluice::SLUICE_CPU_NS
