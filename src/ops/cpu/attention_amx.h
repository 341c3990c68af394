#pragma once
// The two passes of attention.cc over one span, by matrix tiles: keys are left operands as they lie
// in the page, panels of 16 queries right operands packed once; probabilities are left operands,
// values right operands packed once a span and tile.
//
// A score is one chain over dims in steps of 32, an output one chain over the span's tokens in steps
// of 32, whatever the panel holds beside it: rows keep their bits. A row's probabilities are 0 past
// its own token, where other rows of the tile have values; those are finite.

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/linear_amx_tiles.h"

namespace sluice::SLUICE_CPU_NS {
namespace internal {

constexpr int64_t kTileTokens = 16;  // of a left operand of keys
constexpr int64_t kStep = 32;        // bf16 a left operand's row holds
constexpr int64_t kSumStride = 64;   // bytes of a row of sums

/// Every register 16 rows of 64 bytes.
inline void use_full_tiles() {
  TileConfig config;
  for (int i = 0; i < kNumTiles; ++i) {
    config.rows[i] = 16;
    config.row_bytes[i] = 64;
  }
  tile_configure(config);
}

/// sums[4][16 tokens][16 queries] of 64 keys from `k` on against a panel.
inline void score_tiles(const bf16* k, int64_t dim, const bf16* panel, float* sums) {
  const int64_t stride = dim * static_cast<int64_t>(sizeof(bf16));
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (int64_t i = 0; i < dim; i += kStep) {
    tile_load<4>(panel + i * kPanelQueries, kTileRowBytes);
    tile_load<5>(k + i, stride);
    tile_multiply<0, 5, 4>();
    tile_load<6>(k + 16 * dim + i, stride);
    tile_multiply<1, 6, 4>();
    tile_load<7>(k + 32 * dim + i, stride);
    tile_multiply<2, 7, 4>();
    tile_load<5>(k + 48 * dim + i, stride);
    tile_multiply<3, 5, 4>();
  }
  tile_store<0>(sums, kSumStride);
  tile_store<1>(sums + 256, kSumStride);
  tile_store<2>(sums + 512, kSumStride);
  tile_store<3>(sums + 768, kSumStride);
}

/// dots[query][token] of 16 tokens from their sums.
inline void transpose_to_dots(const float* sums, float* dots) {
  __m512i v[16];
  for (int64_t i = 0; i < 16; ++i) v[i] = _mm512_loadu_si512(sums + i * 16);
  transpose_16x16(v);
  for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(dots + i * kKvPageTokens, v[i]);
}

/// sums[16 queries][64 dims] over `num_tokens` (whole steps), values packed as by pack_values.
inline void value_tiles(const bf16* p, const bf16* v, int64_t num_tokens, int64_t dim,
                        float* sums) {
  constexpr int64_t kStrideP = kKvPageTokens * static_cast<int64_t>(sizeof(bf16));
  constexpr int64_t kStrideSums = 4 * kSumStride;
  tile_zero<0>();
  tile_zero<1>();
  tile_zero<2>();
  tile_zero<3>();
  for (int64_t t = 0; t < num_tokens; t += kStep) {
    const bf16* step = v + t * dim;
    tile_load<4>(p + t, kStrideP);
    tile_load<5>(step, kTileRowBytes);
    tile_multiply<0, 4, 5>();
    tile_load<6>(step + kTileElements, kTileRowBytes);
    tile_multiply<1, 4, 6>();
    tile_load<7>(step + 2 * kTileElements, kTileRowBytes);
    tile_multiply<2, 4, 7>();
    tile_load<5>(step + 3 * kTileElements, kTileRowBytes);
    tile_multiply<3, 4, 5>();
  }
  tile_store<0>(sums, kStrideSums);
  tile_store<1>(sums + 16, kStrideSums);
  tile_store<2>(sums + 32, kStrideSums);
  tile_store<3>(sums + 48, kStrideSums);
}

/// Two tokens' values of 32 dims as rows of two right operands: pairs (a, b) by dim.
inline void pack_pair(const bf16* a, const bf16* b, bf16* out) {
  const __m512i lo_of_quarter = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i hi_of_quarter = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512i x = _mm512_loadu_si512(a);
  const __m512i y = b == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(b);
  const __m512i lo = _mm512_unpacklo_epi16(x, y);  // dims 0-3, 8-11, 16-19, 24-27
  const __m512i hi = _mm512_unpackhi_epi16(x, y);  // dims 4-7, 12-15, 20-23, 28-31
  _mm512_storeu_si512(out, _mm512_permutex2var_epi64(lo, lo_of_quarter, hi));
  _mm512_storeu_si512(out + kTileElements, _mm512_permutex2var_epi64(lo, hi_of_quarter, hi));
}

/// Values of a span as right operands [step of 32 tokens][16 dims][16 pairs of tokens][16 dims][2];
/// tokens past `num_tokens` are zeros up to the whole step. Returns the tokens packed.
inline int64_t pack_values(const bf16* v, int64_t num_tokens, int64_t dim, bf16* out) {
  const int64_t padded = (num_tokens + kStep - 1) / kStep * kStep;
  for (int64_t t = 0; t < padded; t += 2) {
    for (int64_t i = 0; i < dim; i += 2 * kLanes) {
      bf16* to = out + t / kStep * kStep * dim + i / kLanes * kTileElements + t % kStep / 2 * kStep;
      if (t < num_tokens) {
        pack_pair(v + t * dim + i, t + 1 < num_tokens ? v + (t + 1) * dim + i : nullptr, to);
      } else {
        std::fill_n(to, kStep, bf16{});
        std::fill_n(to + kTileElements, kStep, bf16{});
      }
    }
  }
  return padded;
}

/// Calls fn(lane, row, query) for the queries of a panel whose rows reach the span.
template <typename Fn>
void for_each_lane(const Tile& tile, int64_t kv_head, int64_t panel, int64_t span, Fn fn) {
  const int64_t first = panel * kPanelQueries;
  const int64_t end = std::min(first + kPanelQueries, tile.kv_queries());
  const int64_t reached = tile.first_row_of(span) * tile.group();
  for (int64_t q = std::max(first, reached); q < end; ++q) {
    fn(q - first, q / tile.group(), kv_head * tile.kv_queries() + q);
  }
}

inline int64_t first_panel(const Tile& tile, int64_t span) {
  return tile.first_row_of(span) * tile.group() / kPanelQueries;
}

}  // namespace internal

/// Before the passes: every query into its panel, [step of 32 dims][16 pairs of dims][16 queries][2].
inline void prepare_queries(const Tile& tile) {
  for (int64_t kv_head = 0; kv_head < tile.num_kv_heads; ++kv_head) {
    for (int64_t panel = 0; panel < num_panels(tile.kv_queries()); ++panel) {
      for (int64_t i = 0; i < tile.dim(); i += internal::kStep) {
        __m512i v[16];
        for (int64_t n = 0; n < kPanelQueries; ++n) {
          const int64_t q = panel * kPanelQueries + n;
          const bf16* row = tile.q_at(q / tile.group(), kv_head) + q % tile.group() * tile.dim();
          v[n] = q < tile.kv_queries() ? _mm512_loadu_si512(row + i) : _mm512_setzero_si512();
        }
        transpose_16x16(v);
        bf16* out = tile.panel_at(kv_head, panel) + i * kPanelQueries;
        for (int64_t n = 0; n < 16; ++n) _mm512_storeu_si512(out + n * internal::kStep, v[n]);
      }
    }
  }
}

/// First pass: scores and statistics of a span, for every row that reaches it.
inline void score_span(const Tile& tile, int64_t kv_head, int64_t span) {
  alignas(64) float sums[4 * 256];
  alignas(64) float dots[kPanelQueries * kKvPageTokens];
  internal::use_full_tiles();
  const bf16* keys = tile.keys(kv_head, span);
  const int64_t tokens = tile.num_tokens(tile.num_rows - 1, span);
  for (int64_t panel = internal::first_panel(tile, span); panel < num_panels(tile.kv_queries());
       ++panel) {
    for (int64_t t = 0; t < tokens; t += 4 * internal::kTileTokens) {
      internal::score_tiles(keys + t * tile.dim(), tile.dim(), tile.panel_at(kv_head, panel), sums);
      for (int64_t i = 0; i < 4; ++i) {
        internal::transpose_to_dots(sums + i * 256, dots + t + i * internal::kTileTokens);
      }
    }
    internal::for_each_lane(tile, kv_head, panel, span, [&](int64_t lane, int64_t r, int64_t q) {
      tile.set_stats(q, span,
                     finish_scores(dots + lane * kKvPageTokens, tile.num_tokens(r, span),
                                   tile.scale(), tile.score_at(q, span)));
    });
  }
}

/// Second pass: the span's share of o, for every row that reaches it.
inline void value_span(const Tile& tile, int64_t kv_head, int64_t span) {
  alignas(64) bf16 values[kKvPageTokens * kMaxHeadDim];
  alignas(64) bf16 p[kPanelQueries * kKvPageTokens];
  alignas(64) float sums[kPanelQueries * 4 * kLanes];
  internal::use_full_tiles();
  const int64_t dim = tile.dim();
  const int64_t tokens = internal::pack_values(
      tile.values(kv_head, span), tile.num_tokens(tile.num_rows - 1, span), dim, values);
  for (int64_t panel = internal::first_panel(tile, span); panel < num_panels(tile.kv_queries());
       ++panel) {
    std::fill_n(p, kPanelQueries * kKvPageTokens, bf16{});
    internal::for_each_lane(tile, kv_head, panel, span, [&](int64_t lane, int64_t r, int64_t q) {
      form_probabilities(tile.score_at(q, span), tile.num_tokens(r, span), tile.context_stats(r, q),
                         [&](int64_t t, Vec x) { store(p + lane * kKvPageTokens + t, x); });
    });
    for (int64_t i = 0; i < dim; i += 4 * kLanes) {
      internal::value_tiles(p, values + i / kLanes * kTileElements, tokens, dim, sums);
      internal::for_each_lane(tile, kv_head, panel, span, [&](int64_t lane, int64_t, int64_t q) {
        float* out = tile.partial_at(q, span) + i;
        for (int64_t c = 0; c < 4 * kLanes; c += kLanes) {
          store(out + c, add(load(out + c), load(sums + lane * 4 * kLanes + c)));
        }
      });
    }
  }
}

}  // namespace sluice::SLUICE_CPU_NS
