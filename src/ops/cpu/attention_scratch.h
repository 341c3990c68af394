#pragma once
// How attention cuts its work and what memory that takes: stated once for the kernel and its bound.

#include <algorithm>

#include "ops/attention.h"

namespace sluice {

/// Scores kept at a time, per worker or (when one row's context is split) in all. 2 MiB of bf16: they
/// stay in L2 between the two passes.
inline constexpr int64_t kScoreBudget = int64_t{1} << 20;
/// Rows of a tile at most: each span's keys and values then serve that many rows from L2.
inline constexpr int64_t kTileRowsMax = 16;
/// Queries that share a matrix tile (AMX).
inline constexpr int64_t kPanelQueries = 16;

inline int64_t num_spans(int64_t context) {
  return pages_for(context);
}
/// Rows whose scores, for `heads` heads each, stay within the budget.
inline int64_t tile_rows(int64_t heads, int64_t spans) {
  return std::clamp<int64_t>(kScoreBudget / (heads * spans * kKvPageTokens), 1, kTileRowsMax);
}
inline int64_t num_panels(int64_t queries) {
  return (queries + kPanelQueries - 1) / kPanelQueries;
}

/// Memory of a tile: `kv_heads` times `queries` queries (a query is one head of one row).
struct AttentionScratch {
  int64_t scores;    // bf16 [queries, spans * kKvPageTokens]
  int64_t stats;     // fp32 [2, queries, spans]: maxima of spans, then their sums of exponentials
  int64_t partials;  // fp32 [partial_spans, queries, head_dim]
  int64_t panels;    // bf16: the queries as right operands (AMX)

  AttentionScratch(int64_t kv_heads, int64_t queries, int64_t spans, int64_t partial_spans,
                   int64_t head_dim)
      : scores(kv_heads * queries * spans * kKvPageTokens),
        stats(kv_heads * queries * 2 * padded(spans)),
        partials(kv_heads * queries * partial_spans * head_dim),
        panels(kv_heads * num_panels(queries) * kPanelQueries * head_dim) {}
  /// Whole vectors.
  static int64_t padded(int64_t spans) { return (spans + 15) / 16 * 16; }
  /// head_dim is a multiple of 16, so that every part starts on 32 bytes at least.
  int64_t num_bytes() const {
    return (2 * (scores + panels) + 4 * (stats + partials) + 63) / 64 * 64;
  }
};

}  // namespace sluice
