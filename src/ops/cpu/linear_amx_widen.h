#pragma once
// FP8 codes to left operands. Part of linear_amx.cc.
//
// Values are widened as v * 2^8: a normal e4m3 code then needs a shift and two bit operations only, because its
// exponent field grows from e + 120 (carries) to e + 128 (one bit to set). The block's scale carries 2^-8. Both factors
// are exact, so is the product.

#include <immintrin.h>

#include <cstdint>

#include "ops/cpu/vec.h"

namespace sluice::SLUICE_CPU_NS {

constexpr float kWidenScale = 0x1p-8f;  // what undoes the widening's factor

/// 32 codes, any.
inline __m512i widen_any(__m256i codes) {
  const __m512i wide = _mm512_cvtepi8_epi16(codes);
  const __m512i sign = _mm512_and_si512(wide, _mm512_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m512i magnitude = _mm512_and_si512(wide, _mm512_set1_epi16(0x7f));
  __m512i value = _mm512_or_si512(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(0x4000));
  // Subnormals: m * 2^-9 * 2^8 = m / 2, as bf16.
  const __m512i halves = _mm512_broadcast_i32x4(
      _mm_setr_epi16(0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4020, 0x4040, 0x4060));
  const __mmask32 subnormal = _mm512_testn_epi16_mask(wide, _mm512_set1_epi16(0x78));
  value = _mm512_mask_permutexvar_epi16(value, subnormal, wide, halves);
  const __mmask32 nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
  value = _mm512_mask_mov_epi16(value, nan, _mm512_set1_epi16(0x7fc0));
  return _mm512_or_si512(value, sign);
}

/// 32 codes, all normal. Sign extension puts the sign at bit 15 after the shift.
inline __m512i widen_normal(__m256i codes) {
  const __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 4);
  const __m512i kept = _mm512_set1_epi16(static_cast<int16_t>(0x87f0));
  const __m512i bias = _mm512_set1_epi16(0x4000);
  return _mm512_ternarylogic_epi32(shifted, kept, bias, 0xea);  // (shifted & kept) | bias
}

/// True when some code is not surely normal: magnitudes 0 to 14 and 127, rare in trained weights.
inline bool has_special(__m512i codes) {
  const __m512i next = _mm512_add_epi8(codes, _mm512_set1_epi8(1));
  return _mm512_testn_epi8_mask(next, _mm512_set1_epi8(0x70)) != 0;
}

/// 64 codes into the same row of two consecutive tiles of [16][32].
inline void widen_64(const uint8_t* codes, bf16* first_tile_row, bf16* second_tile_row) {
  const __m512i c = _mm512_loadu_si512(codes);
  // Loaded again rather than extracted: the shuffle port is the busiest.
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32));
  __m512i a, b;
  if (has_special(c)) [[unlikely]] {
    a = widen_any(low);
    b = widen_any(high);
  } else {
    a = widen_normal(low);
    b = widen_normal(high);
  }
  _mm512_store_si512(first_tile_row, a);
  _mm512_store_si512(second_tile_row, b);
}

/// Row r of a 128-block into row r of 4 tiles.
inline void widen_row(const uint8_t* codes, int64_t r, bf16* tiles) {
  bf16* row = tiles + r * 32;
  widen_64(codes, row, row + 512);
  widen_64(codes + 64, row + 1024, row + 1536);
}

}  // namespace sluice::SLUICE_CPU_NS
