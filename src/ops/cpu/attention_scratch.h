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

inline int64_t num_spans(int64_t context) {
  return (context + kKvPageTokens - 1) / kKvPageTokens;
}
/// Rows whose scores, for `heads` heads each, stay within the budget.
inline int64_t tile_rows(int64_t heads, int64_t spans) {
  return std::clamp<int64_t>(kScoreBudget / (heads * spans * kKvPageTokens), 1, kTileRowsMax);
}

/// Memory of a tile of queries (a query is one head of one row).
struct AttentionScratch {
  int64_t scores = 0;    // bf16 [queries, spans * kKvPageTokens]
  int64_t stats = 0;     // fp32 [queries, spans, 2]: the span's maximum, its sum of exponentials
  int64_t partials = 0;  // fp32 [queries, partial_spans, head_dim]

  AttentionScratch(int64_t queries, int64_t spans, int64_t partial_spans, int64_t head_dim)
      : scores(queries * spans * kKvPageTokens),
        stats(round_up(queries * spans * 2)),
        partials(round_up(queries * partial_spans * head_dim)) {}
  static int64_t round_up(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t num_bytes() const { return 2 * scores + 4 * (stats + partials); }
};

}  // namespace sluice
