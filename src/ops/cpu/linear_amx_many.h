#pragma once
// More than 16 rows of x: a blocked product. Part of linear_amx.cc.
//
// For a chunk of kChunkK: the unit's weights become 16 KB of tiles in L1 (copied, or widened), and all panels pass by
// them from L2, two at a time: 2 x 2 sum tiles, one tile load a product. Sums wait in fp32 between chunks (exact).

#include "ops/cpu/linear_amx_tiles.h"
#include "ops/cpu/linear_amx_widen.h"

namespace sluice {
namespace {

constexpr int64_t kChunkK = 256;
constexpr int64_t kChunkSteps = kChunkK / kTileK;
/// x rows whose sums a worker holds at a time, and units it works on together when x does not fit in L2.
constexpr int64_t kRowsMax = 512;
constexpr int64_t kGroupUnits = 8;
constexpr int64_t kPanelsMax = kRowsMax / kPanelRows;

/// A worker's memory.
struct alignas(64) ManyScratch {
  /// [panel][tile][out][row]
  using UnitSums = float[kPanelsMax][kUnitTiles][kOutTile * kPanelRows];

  bf16 weights[kUnitTiles][kChunkSteps * kTileElements];
  float blocks[kUnitTiles * 2][kOutTile * kPanelRows];
  float unused[kOutTile * kPanelRows];  // sums of a missing tile
  UnitSums sums[kGroupUnits];
};

inline void copy_tiles(const OutTile& tile, int64_t first_k, int64_t steps, bf16* out) {
  for (int64_t r = 0; r < tile.num_out; ++r) {
    const std::byte* row = tile.data() + r * tile.row_bytes() + first_k * 2;
    for (int64_t s = 0; s < steps; ++s) {
      _mm512_store_si512(out + s * kTileElements + r * kTileK,
                         _mm512_loadu_si512(row + s * kTileRowBytes));
    }
  }
}

/// Weights of a tile over [first_k, first_k + 32 steps) as left operands, missing outputs as zeros.
inline void load_weights(const OutTile& tile, int64_t first_k, int64_t steps, bf16* out) {
  if (tile.num_out < kOutTile) std::fill_n(out, steps * kTileElements, bf16{});
  if (tile.num_out == 0) return;
  if (!tile.is_fp8()) return copy_tiles(tile, first_k, steps, out);
  const auto* codes = reinterpret_cast<const uint8_t*>(tile.data()) + first_k;
  for (int64_t s = 0; s < steps; s += kBlockSteps) {
    for (int64_t r = 0; r < tile.num_out; ++r) {
      widen_row(codes + r * tile.row_bytes() + s * kTileK, r, out + s * kTileElements);
    }
  }
}

/// Where the four sum tiles of two panels live; tile t of panel p is at [2 p + t].
using SumTiles = float * [2 * kUnitTiles];

/// Sum tiles += weights x panels, over `steps` tiles of k.
template <int kPanels>
inline void multiply(const bf16* w0, const bf16* w1, const bf16* x0, const bf16* x1,
                     int64_t steps) {
  for (int64_t s = 0; s < steps; ++s) {
    _tile_loadd(6, x0 + s * kTileElements, kTileRowBytes);
    _tile_loadd(4, w0 + s * kTileElements, kTileRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w1 + s * kTileElements, kTileRowBytes);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, x1 + s * kTileElements, kTileRowBytes);
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
}

template <int kPanels>
inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kPanels == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

template <int kPanels>
inline void load_sums(const SumTiles& sums) {
  _tile_loadd(0, sums[0], kTileRowBytes);
  _tile_loadd(1, sums[1], kTileRowBytes);
  if constexpr (kPanels == 2) {
    _tile_loadd(2, sums[2], kTileRowBytes);
    _tile_loadd(3, sums[3], kTileRowBytes);
  }
}

template <int kPanels>
inline void store_sums(const SumTiles& sums) {
  _tile_stored(0, sums[0], kTileRowBytes);
  _tile_stored(1, sums[1], kTileRowBytes);
  if constexpr (kPanels == 2) {
    _tile_stored(2, sums[2], kTileRowBytes);
    _tile_stored(3, sums[3], kTileRowBytes);
  }
}

inline void add_scaled_tile(const float* block, float scale, float* total) {
  const __m512 s = _mm512_set1_ps(scale * kWidenScale);
  for (int64_t i = 0; i < kOutTile * kPanelRows; i += 16) {
    _mm512_store_ps(total + i,
                    _mm512_fmadd_ps(s, _mm512_load_ps(block + i), _mm512_load_ps(total + i)));
  }
}

/// One chunk of k of a unit's tiles (both of one format), for one or two panels.
struct Chunk {
  const bf16* w[kUnitTiles];
  const float*
      scales[kUnitTiles];  // of the chunk's first block; null for BF16 and for a missing tile
  int64_t steps = 0;
  bool is_first = false;
  bool is_fp8 = false;
};

template <int kPanels>
inline void run_bf16(const Chunk& c, const bf16* x0, const bf16* x1, const SumTiles& sums) {
  if (c.is_first) {
    zero_sums<kPanels>();
  } else {
    load_sums<kPanels>(sums);
  }
  multiply<kPanels>(c.w[0], c.w[1], x0, x1, c.steps);
  store_sums<kPanels>(sums);
}

template <int kPanels>
inline void run_fp8(const Chunk& c, const bf16* x0, const bf16* x1, const SumTiles& sums,
                    const SumTiles& blocks) {
  if (c.is_first) {
    for (int i = 0; i < kPanels * kUnitTiles; ++i)
      std::fill_n(sums[i], kOutTile * kPanelRows, 0.0f);
  }
  for (int64_t s = 0; s < c.steps; s += kBlockSteps) {
    const int64_t at = s * kTileElements;
    zero_sums<kPanels>();
    multiply<kPanels>(c.w[0] + at, c.w[1] + at, x0 + at, x1 + at, kBlockSteps);
    store_sums<kPanels>(blocks);
    for (int i = 0; i < kPanels * kUnitTiles; ++i) {
      const float* scales = c.scales[i % kUnitTiles];
      if (scales != nullptr) add_scaled_tile(blocks[i], scales[s / kBlockSteps], sums[i]);
    }
  }
}

template <int kPanels>
inline void run_panels(const Chunk& c, const bf16* x0, const bf16* x1, const SumTiles& sums,
                       const SumTiles& blocks) {
  if (c.is_fp8) {
    run_fp8<kPanels>(c, x0, x1, sums, blocks);
  } else {
    run_bf16<kPanels>(c, x0, x1, sums);
  }
}

/// Adds k tiles [first_step, first_step + steps) of `tiles` (of one format) to the unit's sums of panels [0, panels)
/// from first_panel on. Slot t of the sums belongs to tiles[t].
inline void add_chunk(const OutTile (&tiles)[kUnitTiles], int64_t first_step, int64_t steps,
                      const Panels& x, int64_t first_panel, int64_t panels, ManyScratch& m,
                      ManyScratch::UnitSums& sums) {
  Chunk c;
  c.steps = steps;
  c.is_first = first_step == 0;
  for (int t = 0; t < kUnitTiles; ++t) {
    load_weights(tiles[t], first_step * kTileK, steps, m.weights[t]);
    c.w[t] = m.weights[t];
    c.scales[t] = nullptr;
    if (tiles[t].num_out == 0 || !tiles[t].is_fp8()) continue;
    c.is_fp8 = true;
    c.scales[t] = tiles[t].scales() + first_step / kBlockSteps;
  }
  const auto slot = [&](int64_t p, int t) { return tiles[t].num_out > 0 ? sums[p][t] : m.unused; };
  const SumTiles blocks = {m.blocks[0], m.blocks[1], m.blocks[2], m.blocks[3]};
  int64_t p = 0;
  for (; p + 2 <= panels; p += 2) {
    const SumTiles at = {slot(p, 0), slot(p, 1), slot(p + 1, 0), slot(p + 1, 1)};
    run_panels<2>(c, x.tile(first_panel + p, first_step), x.tile(first_panel + p + 1, first_step),
                  at, blocks);
  }
  if (p < panels) {
    const SumTiles at = {slot(p, 0), slot(p, 1), nullptr, nullptr};
    run_panels<1>(c, x.tile(first_panel + p, first_step), nullptr, at, blocks);
  }
}

inline void add_unit_chunk(const Unit& unit, int64_t first_step, int64_t steps, const Panels& x,
                           int64_t first_panel, int64_t panels, ManyScratch& m,
                           ManyScratch::UnitSums& sums) {
  if (!is_mixed(unit))
    return add_chunk(unit.tiles, first_step, steps, x, first_panel, panels, m, sums);
  const OutTile first[kUnitTiles] = {unit.tiles[0], {}};
  const OutTile second[kUnitTiles] = {{}, unit.tiles[1]};
  add_chunk(first, first_step, steps, x, first_panel, panels, m, sums);
  add_chunk(second, first_step, steps, x, first_panel, panels, m, sums);
}

inline void finish_panels(const LinearJob& job, const Unit& unit, int64_t first_panel,
                          int64_t panels, const ManyScratch::UnitSums& stored) {
  for (int64_t p = 0; p < panels; ++p) {
    TileSums sums[kUnitTiles][kPanelRows];
    for (int t = 0; t < kUnitTiles; ++t) transpose_sums(stored[p][t], kPanelRows, sums[t]);
    const int64_t row = (first_panel + p) * kPanelRows;
    finish_unit(job, unit, row, std::min(kPanelRows, job.x.num_rows - row), {sums[0], sums[1]});
  }
}

/// Units [range.first, range.end), at most kGroupUnits, for all rows.
inline void run_group_many(const LinearJob& job, UnitQueue::Range range, const Panels& x,
                           ManyScratch& m) {
  const int64_t all_panels = ceil_div(job.x.num_rows, kPanelRows);
  const int64_t all_steps = x.num_in / kTileK;
  for (int64_t first_panel = 0; first_panel < all_panels; first_panel += kPanelsMax) {
    const int64_t panels = std::min(kPanelsMax, all_panels - first_panel);
    for (int64_t step = 0; step < all_steps; step += kChunkSteps) {
      const int64_t steps = std::min(kChunkSteps, all_steps - step);
      for (int64_t u = range.first; u < range.end; ++u) {
        add_unit_chunk(unit_at(job, u), step, steps, x, first_panel, panels, m,
                       m.sums[u - range.first]);
      }
    }
    for (int64_t u = range.first; u < range.end; ++u) {
      finish_panels(job, unit_at(job, u), first_panel, panels, m.sums[u - range.first]);
    }
  }
}

}  // namespace
}  // namespace sluice
