#pragma once
// Tile registers, and getting operands into the form they want. Part of linear_amx.cc.
//
// A tile is 1 KB: 16 rows of 64 bytes. Left operand (weights): [16 outputs][32 k] bf16. Right operand (x): [16 pairs of
// k][cols rows of x][2] bf16. Sum: [16 outputs][cols] fp32.

#include <immintrin.h>

#include <bit>

#include "ops/cpu/linear_job.h"

namespace sluice::SLUICE_CPU_NS {

constexpr int64_t kPanelRows = 16;  // x rows of a right operand
constexpr int64_t kTileK = 32;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kTileElements = 512;
constexpr int64_t kBlockSteps = kFp8BlockSize / kTileK;
constexpr int kLine = 64;

// Tile registers by number: sums 0 to 3, weights 4 and 5, x 6 and 7.
constexpr int kNumTiles = 8, kFirstWeightTile = 4, kFirstXTile = 6;

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Written out because GCC 12's intrinsics do not say that they read memory: it may drop or move the stores that fill a
// configuration or a widened tile.
inline void tile_configure(const TileConfig& config) {
  __asm__ volatile("ldtilecfg %0" ::"m"(config));
}
inline void tile_release() {
  __asm__ volatile("tilerelease" ::);
}
template <int kTile>
inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
/// Rows of 64 bytes (or as configured), `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* data, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(data), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
inline void tile_store(void* data, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(data), "r"(stride), "i"(kTile)
                   : "memory");
}
/// sum += weights x
template <int kSum, int kWeights, int kX>
inline void tile_multiply() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kWeights), "i"(kX));
}

/// Shapes the tile registers for num_out[t] outputs of weight tile t by cols rows of x. Sums 0 and 2 belong to weight
/// tile 0, 1 and 3 to weight tile 1.
inline void configure_tiles(const int64_t (&num_out)[kUnitTiles], int64_t cols) {
  TileConfig config;
  for (int i = 0; i < kNumTiles; ++i) {
    const int64_t rows = i < kFirstXTile ? num_out[i % 2] : kTileK / 2;
    const bool is_weight = i >= kFirstWeightTile && i < kFirstXTile;
    config.rows[i] = static_cast<uint8_t>(rows);
    config.row_bytes[i] = static_cast<uint16_t>(rows == 0   ? 0
                                                : is_weight ? kTileRowBytes
                                                            : 4 * cols);
  }
  tile_configure(config);
}

constexpr int64_t kFullTiles[kUnitTiles] = {kOutTile, kOutTile};

/// Transposes 16 x 16 words of 32 bits held in rows.
inline void transpose_16x16(__m512i (&v)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
  }
  for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
  }
}

/// x as right operands: panel p holds rows [16 p, 16 p + 16) as num_in / 32 tiles, one after the other.
struct Panels {
  const bf16* data = nullptr;
  int64_t cols = kPanelRows;  // of every panel; missing rows are zero
  int64_t num_in = 0;

  const bf16* tile(int64_t panel, int64_t step) const {
    return data + panel * cols * num_in + step * kTileK * cols;
  }
};

/// A few rows make a narrow panel; beyond, panels are full.
inline int64_t panel_cols(int64_t num_rows) {
  const auto rows = static_cast<uint64_t>(num_rows);
  return num_rows >= kPanelRows ? kPanelRows : static_cast<int64_t>(std::bit_ceil(rows));
}

/// Packs k tiles [first_step, end_step) of a panel.
inline void pack_panel(MatView<const bf16> x, int64_t panel, int64_t first_step, int64_t end_step,
                       int64_t cols, bf16* out) {
  const int64_t first = panel * kPanelRows;
  const int64_t rows = std::min(cols, x.num_rows - first);
  const auto mask = static_cast<__mmask16>((1u << cols) - 1);
  for (int64_t step = first_step; step < end_step; ++step) {
    __m512i v[16];
    for (int64_t r = 0; r < 16; ++r) {
      v[r] =
          r < rows ? _mm512_loadu_si512(x.row(first + r) + step * kTileK) : _mm512_setzero_si512();
    }
    transpose_16x16(v);
    for (int64_t i = 0; i < 16; ++i)
      _mm512_mask_storeu_epi32(out + (step * 16 + i) * 2 * cols, mask, v[i]);
  }
}

/// Gate and up stored in different formats: then each runs alone.
inline bool is_mixed(const Unit& unit) {
  return unit.tiles[1].num_out > 0 && unit.tiles[0].is_fp8() != unit.tiles[1].is_fp8();
}

/// sums[row][out] from a stored sum tile [out][cols].
inline void transpose_sums(const float* tile, int64_t cols, TileSums* sums) {
  if (cols == 1) {
    std::copy_n(tile, kOutTile, sums[0]);
    return;
  }
  const auto mask = static_cast<__mmask16>((1u << cols) - 1);
  __m512i v[16];
  for (int64_t i = 0; i < 16; ++i) v[i] = _mm512_maskz_loadu_epi32(mask, tile + i * cols);
  transpose_16x16(v);
  for (int64_t r = 0; r < cols; ++r) _mm512_storeu_si512(sums[r], v[r]);
}

}  // namespace sluice::SLUICE_CPU_NS
