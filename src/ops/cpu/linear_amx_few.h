#pragma once
// Up to 16 rows of x: one panel, weights straight from where they are stored. Memory-bound. Part of linear_amx.cc.

#include "ops/cpu/linear_amx_tiles.h"
#include "ops/cpu/linear_amx_widen.h"

namespace sluice::SLUICE_CPU_NS {

/// The same line of a tile's rows, to be prefetched.
struct LineOfRows {
  const std::byte* data = nullptr;
  int64_t stride = 0;

  void fetch(int64_t row) const {
    _mm_prefetch(reinterpret_cast<const char*>(data + row * stride), _MM_HINT_T1);
  }
};

/// Weight lines ahead of those in use: the same tiles further along k, then the worker's next unit. For FP8, whose
/// widening leaves the memory idle otherwise; a BF16 unit's tile loads keep it busy on their own.
/// Fetches go between the loads, one for one: in bursts they fill the line buffers and the loads wait (measured).
class Ahead {
 public:
  Ahead(const Unit& unit, const Unit& next) {
    for (int t = 0; t < kUnitTiles; ++t) {
      here_[t] = rows_of(unit.tiles[t]);
      next_[t] = rows_of(next.tiles[t]);
    }
  }
  /// What to fetch while line `line` (64 bytes) of every row of tile t is read; that line itself at the very end.
  LineOfRows at(int t, int64_t line) const {
    const Rows& here = here_[t];
    const Rows& next = next_[t];
    if (line + kLines < here.lines) return here.at(line + kLines);
    // A row shorter than the distance: the next unit's line while this one's is read.
    const int64_t ahead = here.lines > kLines ? line + kLines - here.lines : line;
    return ahead < next.lines ? next.at(ahead) : here.at(line);
  }

 private:
  static constexpr int64_t kLines = 64;

  struct Rows {
    const std::byte* data = nullptr;
    int64_t stride = 0;
    int64_t lines = 0;  // of a row
    LineOfRows at(int64_t line) const { return {data + line * kLine, stride}; }
  };
  static Rows rows_of(const OutTile& tile) {
    if (tile.num_out == 0) return {};
    return {tile.data(), tile.row_bytes(), ceil_div(tile.row_bytes(), kLine)};
  }

  Rows here_[kUnitTiles];
  Rows next_[kUnitTiles];
};

/// Sum tiles as stored: [out][cols].
struct alignas(64) StoredSums {
  float values[kUnitTiles][kOutTile * kPanelRows];
};

/// sums of a BF16 unit.
inline void dot_bf16(const Unit& unit, const Panels& x, StoredSums& sums) {
  const bool two = unit.tiles[1].num_out > 0;
  const std::byte* w0 = unit.tiles[0].data();
  const std::byte* w1 = two ? unit.tiles[1].data() : nullptr;
  const int64_t stride = unit.tiles[0].row_bytes();
  tile_zero<0>();
  if (two) tile_zero<1>();
  for (int64_t step = 0; step < x.num_in / kTileK; ++step) {
    tile_load<6>(x.tile(0, step), x.cols * 4);
    tile_load<4>(w0 + step * kTileRowBytes, stride);
    tile_multiply<0, 4, 6>();
    if (two) {
      tile_load<5>(w1 + step * kTileRowBytes, stride);
      tile_multiply<1, 5, 6>();
    }
  }
  tile_store<0>(sums.values[0], x.cols * 4);
  if (two) tile_store<1>(sums.values[1], x.cols * 4);
}

/// total = fma(scale, block, total) over a stored sum tile.
inline void add_block(const float* block, float scale, int64_t cols, float* total) {
  const __m512 s = _mm512_set1_ps(scale * kWidenScale);
  for (int64_t i = 0; i < kOutTile * cols; i += 16) {
    _mm512_store_ps(total + i,
                    _mm512_fmadd_ps(s, _mm512_load_ps(block + i), _mm512_load_ps(total + i)));
  }
}

/// sums of an FP8 unit. Blocks are widened one ahead of their products, and added one behind, so that no load waits
/// for a store.
inline void dot_fp8(const Unit& unit, const Panels& x, const Ahead& ahead, StoredSums& sums) {
  alignas(64) bf16 wide[2][kUnitTiles][kBlockSteps * kTileElements];
  alignas(64) StoredSums block[2];
  const int num_tiles = unit.tiles[1].num_out > 0 ? 2 : 1;
  const int64_t stride = unit.tiles[0].row_bytes();
  const int64_t num_blocks = x.num_in / kFp8BlockSize;
  // A quarter of block b's rows: widening is spread between the products, whose latency it hides.
  const auto widen = [&](int64_t b, int64_t quarter) {
    for (int t = 0; t < num_tiles; ++t) {
      const auto* codes =
          reinterpret_cast<const uint8_t*>(unit.tiles[t].data()) + b * kFp8BlockSize;
      const int64_t first = std::min(unit.tiles[t].num_out, quarter * kOutTile / 4);
      const int64_t end = std::min(unit.tiles[t].num_out, (quarter + 1) * kOutTile / 4);
      const LineOfRows lines[2] = {ahead.at(t, 2 * b), ahead.at(t, 2 * b + 1)};
      for (int64_t r = first; r < end; ++r) {
        lines[0].fetch(r);
        lines[1].fetch(r);
        widen_row(codes + r * stride, r, wide[b % 2][t]);
      }
    }
  };
  const auto add = [&](int64_t b) {
    for (int t = 0; t < num_tiles; ++t) {
      add_block(block[b % 2].values[t], unit.tiles[t].scales()[b], x.cols, sums.values[t]);
    }
  };
  for (int t = 0; t < num_tiles; ++t) std::fill_n(sums.values[t], kOutTile * x.cols, 0.0f);
  for (int64_t q = 0; q < kBlockSteps; ++q) widen(0, q);
  for (int64_t b = 0; b < num_blocks; ++b) {
    tile_zero<0>();
    tile_zero<1>();
    for (int64_t q = 0; q < kBlockSteps; ++q) {
      tile_load<6>(x.tile(0, b * kBlockSteps + q), x.cols * 4);
      tile_load<4>(wide[b % 2][0] + q * kTileElements, kTileRowBytes);
      tile_multiply<0, 4, 6>();
      if (num_tiles == 2) {
        tile_load<5>(wide[b % 2][1] + q * kTileElements, kTileRowBytes);
        tile_multiply<1, 5, 6>();
      }
      if (b + 1 < num_blocks) widen(b + 1, q);
    }
    tile_store<0>(block[b % 2].values[0], x.cols * 4);
    tile_store<1>(block[b % 2].values[1], x.cols * 4);
    if (b > 0) add(b - 1);
  }
  add(num_blocks - 1);
}

/// The tile registers come and go configured for full tiles.
inline void dot_unit(const Unit& unit, const Unit& next, const Panels& x, StoredSums& sums) {
  if (unit.tiles[0].is_fp8()) return dot_fp8(unit, x, Ahead(unit, next), sums);
  const int64_t num_out[kUnitTiles] = {unit.tiles[0].num_out, unit.tiles[1].num_out};
  const bool edge = num_out[0] != kOutTile || num_out[1] != kOutTile;
  if (edge) configure_tiles(num_out, x.cols);
  dot_bf16(unit, x, sums);
  if (edge) configure_tiles(kFullTiles, x.cols);
}

/// One unit for all (at most 16) rows.
inline void run_unit_few(const LinearJob& job, const Unit& unit, const Unit& next,
                         const Panels& x) {
  StoredSums stored;
  if (is_mixed(unit)) {
    for (int t = 0; t < kUnitTiles; ++t) {
      StoredSums alone;
      dot_unit({{unit.tiles[t], {}}}, {}, x, alone);
      std::copy_n(alone.values[0], kOutTile * x.cols, stored.values[t]);
    }
  } else {
    dot_unit(unit, next, x, stored);
  }
  TileSums sums[kUnitTiles][kPanelRows];
  for (int t = 0; t < kUnitTiles; ++t) transpose_sums(stored.values[t], x.cols, sums[t]);
  finish_unit(job, unit, 0, job.x.num_rows, {sums[0], sums[1]});
}

}  // namespace sluice::SLUICE_CPU_NS
