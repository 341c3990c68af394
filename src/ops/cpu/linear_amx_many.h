#pragma once
// More than 16 rows of x: a blocked product. Part of linear_amx.cc.
//
// For a chunk of kChunkK: the unit's weights become 16 KB of tiles in L1 (copied, or widened), and all panels pass by
// them from L2, two at a time: 2 x 2 sum tiles, one tile load a product. Sums wait in fp32 between chunks (exact).
// The next chunk's weights are fetched meanwhile. With few panels BF16 weights are read in place: a copy would cost more
// than it saves.

#include "ops/cpu/linear_amx_tiles.h"
#include "ops/cpu/linear_amx_widen.h"

namespace sluice::SLUICE_CPU_NS {

constexpr int64_t kChunkK = 256;
constexpr int64_t kChunkSteps = kChunkK / kTileK;
/// x rows whose sums a worker holds at a time, and units it works on together when x does not fit in L2.
constexpr int64_t kRowsMax = 512;
constexpr int64_t kGroupUnits = 8;
constexpr int64_t kPanelsMax = kRowsMax / kPanelRows;
/// Up to this many panels BF16 weights are not copied.
constexpr int64_t kPanelsInPlace = 4;

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

/// Both tiles' weights over a chunk of k: k tile s starts `step` elements after the one before, its rows are `stride`
/// bytes apart.
struct LeftOperands {
  const bf16* data[kUnitTiles] = {};
  int64_t stride = kTileRowBytes;
  int64_t step = kTileElements;
};

/// Sum tiles += weights x panels, over k tiles [first, end) of the chunk.
template <int kPanels>
inline void multiply(const LeftOperands& w, const bf16* x0, const bf16* x1, int64_t first,
                     int64_t end) {
  const int64_t stride = w.stride, step = w.step;
  const bf16* w0 = w.data[0] + first * step;
  const bf16* w1 = w.data[1] + first * step;
  for (int64_t s = first; s < end; ++s) {
    tile_load<4>(w0, stride);
    tile_load<5>(w1, stride);
    tile_load<6>(x0 + s * kTileElements, kTileRowBytes);
    if constexpr (kPanels == 2) tile_load<7>(x1 + s * kTileElements, kTileRowBytes);
    tile_multiply<0, 4, 6>();
    tile_multiply<1, 5, 6>();
    if constexpr (kPanels == 2) {
      tile_multiply<2, 4, 7>();
      tile_multiply<3, 5, 7>();
    }
    w0 += step;
    w1 += step;
  }
}

template <int kPanels>
inline void zero_sums() {
  tile_zero<0>();
  tile_zero<1>();
  if constexpr (kPanels == 2) {
    tile_zero<2>();
    tile_zero<3>();
  }
}

template <int kPanels>
inline void load_sums(const SumTiles& sums) {
  tile_load<0>(sums[0], kTileRowBytes);
  tile_load<1>(sums[1], kTileRowBytes);
  if constexpr (kPanels == 2) {
    tile_load<2>(sums[2], kTileRowBytes);
    tile_load<3>(sums[3], kTileRowBytes);
  }
}

template <int kPanels>
inline void store_sums(const SumTiles& sums) {
  tile_store<0>(sums[0], kTileRowBytes);
  tile_store<1>(sums[1], kTileRowBytes);
  if constexpr (kPanels == 2) {
    tile_store<2>(sums[2], kTileRowBytes);
    tile_store<3>(sums[3], kTileRowBytes);
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
  LeftOperands w;
  /// Of the chunk's first block; null for BF16 and for a missing tile.
  const float* scales[kUnitTiles];
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
  multiply<kPanels>(c.w, x0, x1, 0, c.steps);
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
    zero_sums<kPanels>();
    multiply<kPanels>(c.w, x0, x1, s, s + kBlockSteps);
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

/// Where a chunk of weights is, for fetching.
struct ChunkPlace {
  Unit unit;
  int64_t first_step = 0;
  int64_t steps = 0;

  /// Fetches share i of n of the chunk's rows.
  void fetch(int64_t i, int64_t n) const {
    for (const OutTile& tile : unit.tiles) {
      if (tile.num_out == 0) continue;
      const int64_t step_bytes = tile.is_fp8() ? kTileK : kTileRowBytes;
      for (int64_t r = i * tile.num_out / n; r < (i + 1) * tile.num_out / n; ++r) {
        const std::byte* p = tile.data() + r * tile.row_bytes() + first_step * step_bytes;
        for (int64_t at = 0; at < steps * step_bytes; at += kLine) {
          _mm_prefetch(reinterpret_cast<const char*>(p + at), _MM_HINT_T1);
        }
      }
    }
  }
};

/// The panels a worker passes by the weights, and its memory.
struct PanelRange {
  const Panels& x;
  int64_t first = 0;
  int64_t count = 0;
  ManyScratch& m;

  const bf16* tile(int64_t p, int64_t step) const { return x.tile(first + p, step); }
};

/// Outputs are far apart, a row of the result each: fetched for writing while the last products run.
inline void fetch_outputs(const Unit& unit, int64_t first_row, int64_t num_rows) {
  const MatView<bf16>& out = unit.tiles[0].projection->out;
  const int64_t end = std::min(first_row + num_rows, out.num_rows);
  for (int64_t r = first_row; r < end; ++r)
    __builtin_prefetch(out.row(r) + unit.tiles[0].first_out, 1);
}

/// The chunk's weights where they are stored, or in the worker's memory.
inline LeftOperands left_operands(const ChunkPlace& at, bool in_place, ManyScratch& m) {
  LeftOperands w;
  for (int t = 0; t < kUnitTiles; ++t) {
    const OutTile& tile = at.unit.tiles[t];
    if (in_place) {
      w.data[t] = reinterpret_cast<const bf16*>(tile.data()) + at.first_step * kTileK;
      w.stride = tile.row_bytes();
      w.step = kTileK;
    } else {
      load_weights(tile, at.first_step * kTileK, at.steps, m.weights[t]);
      w.data[t] = m.weights[t];
    }
  }
  return w;
}

inline Chunk make_chunk(const ChunkPlace& at, const PanelRange& panels) {
  Chunk c;
  c.steps = at.steps;
  c.is_first = at.first_step == 0;
  const OutTile(&tiles)[kUnitTiles] = at.unit.tiles;
  for (const OutTile& tile : tiles) c.is_fp8 = c.is_fp8 || (tile.num_out > 0 && tile.is_fp8());
  const bool full = tiles[0].num_out == kOutTile && tiles[1].num_out == kOutTile;
  const bool in_place = !c.is_fp8 && full && panels.count <= kPanelsInPlace;
  c.w = left_operands(at, in_place, panels.m);
  for (int t = 0; t < kUnitTiles; ++t) {
    c.scales[t] = c.is_fp8 && tiles[t].num_out > 0 ? tiles[t].scales() + at.first_step / kBlockSteps
                                                   : nullptr;
  }
  return c;
}

/// Adds a chunk of a unit (whose tiles are of one format) to its sums of all panels.
inline void add_chunk(const ChunkPlace& at, const ChunkPlace& next, const PanelRange& panels,
                      ManyScratch::UnitSums& sums) {
  ManyScratch& m = panels.m;
  const Chunk c = make_chunk(at, panels);
  const auto slot = [&](int64_t p, int t) {
    return at.unit.tiles[t].num_out > 0 ? sums[p][t] : m.unused;
  };
  const SumTiles blocks = {m.blocks[0], m.blocks[1], m.blocks[2], m.blocks[3]};
  const int64_t pairs = panels.count / 2;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t p = 2 * i;
    const SumTiles tiles = {slot(p, 0), slot(p, 1), slot(p + 1, 0), slot(p + 1, 1)};
    next.fetch(i, pairs);
    if (at.first_step + at.steps == panels.x.num_in / kTileK) {
      fetch_outputs(at.unit, (panels.first + p) * kPanelRows, 2 * kPanelRows);
    }
    run_panels<2>(c, panels.tile(p, at.first_step), panels.tile(p + 1, at.first_step), tiles,
                  blocks);
  }
  if (panels.count % 2 != 0) {
    const int64_t p = panels.count - 1;
    const SumTiles tiles = {slot(p, 0), slot(p, 1), nullptr, nullptr};
    run_panels<1>(c, panels.tile(p, at.first_step), nullptr, tiles, blocks);
  }
}

inline void add_unit_chunk(const ChunkPlace& at, const ChunkPlace& next, const PanelRange& panels,
                           ManyScratch::UnitSums& sums) {
  if (!is_mixed(at.unit)) return add_chunk(at, next, panels, sums);
  add_chunk({{{at.unit.tiles[0], {}}}, at.first_step, at.steps}, {}, panels, sums);
  add_chunk({{{{}, at.unit.tiles[1]}}, at.first_step, at.steps}, next, panels, sums);
}

inline void finish_panels(const LinearJob& job, const Unit& unit, const PanelRange& panels,
                          const ManyScratch::UnitSums& stored) {
  for (int64_t p = 0; p < panels.count; ++p) {
    TileSums sums[kUnitTiles][kPanelRows];
    for (int t = 0; t < kUnitTiles; ++t) transpose_sums(stored[p][t], kPanelRows, sums[t]);
    const int64_t row = (panels.first + p) * kPanelRows;
    finish_unit(job, unit, row, std::min(kPanelRows, job.x.num_rows - row), {sums[0], sums[1]});
  }
}

/// Units [range.first, range.end), at most kGroupUnits, for a range of panels; `after` is what the worker reads next.
inline void run_group_panels(const LinearJob& job, UnitQueue::Range range, const ChunkPlace& after,
                             const PanelRange& panels) {
  const int64_t all_steps = panels.x.num_in / kTileK;
  const auto place = [&](int64_t unit, int64_t step) {
    return ChunkPlace{unit_at(job, unit), step, std::min(kChunkSteps, all_steps - step)};
  };
  for (int64_t step = 0; step < all_steps; step += kChunkSteps) {
    const bool last = step + kChunkSteps >= all_steps;
    for (int64_t u = range.first; u < range.end; ++u) {
      const ChunkPlace next = u + 1 < range.end ? place(u + 1, step)
                              : last            ? after
                                                : place(range.first, step + kChunkSteps);
      add_unit_chunk(place(u, step), next, panels, panels.m.sums[u - range.first]);
    }
  }
  for (int64_t u = range.first; u < range.end; ++u) {
    finish_panels(job, unit_at(job, u), panels, panels.m.sums[u - range.first]);
  }
}

/// The same for all rows.
inline void run_group_many(const LinearJob& job, UnitQueue::Range range, UnitQueue::Range next,
                           const Panels& x, ManyScratch& m) {
  const int64_t all_panels = ceil_div(job.x.num_rows, kPanelRows);
  const int64_t steps = std::min(kChunkSteps, x.num_in / kTileK);
  for (int64_t first = 0; first < all_panels; first += kPanelsMax) {
    const bool last = first + kPanelsMax >= all_panels;
    ChunkPlace after;
    if (!last) after = {unit_at(job, range.first), 0, steps};
    if (last && !next.empty()) after = {unit_at(job, next.first), 0, steps};
    run_group_panels(job, range, after, {x, first, std::min(kPanelsMax, all_panels - first), m});
  }
}

}  // namespace sluice::SLUICE_CPU_NS
