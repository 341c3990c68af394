#pragma once
// The two passes of attention.cc over one span, by vector dot products: row after row, up to
// kQueriesMax heads of a row together.

#include "ops/cpu/attention_tile.h"

namespace sluice::SLUICE_CPU_NS {

#if defined(__AVX512F__)
inline constexpr int kQueriesMax = 4;  // 4 queries x 4 keys, 4 queries x 4 vectors of values
inline constexpr int kKeys = 4;
inline constexpr int kValueVecs = 4;
#else
inline constexpr int kQueriesMax = 2;
inline constexpr int kKeys = 2;
inline constexpr int kValueVecs = 2;
#endif

namespace internal {

/// dots[q][t] = q . k_t for kNumKeys tokens. A dot product is sixteen chains over the dims, then a
/// fixed tree, whatever it is computed beside.
template <int kQueries, int kNumKeys>
inline void dots_of_keys(const float* q, const bf16* k, int64_t dim, float* dots) {
  Vec sums[kQueries][kNumKeys];
  for (auto& row : sums) {
    for (Vec& s : row) s = zero();
  }
  for (int64_t i = 0; i < dim; i += kLanes) {
    Vec key[kNumKeys];
    for (int t = 0; t < kNumKeys; ++t) key[t] = load(k + t * dim + i);
    for (int n = 0; n < kQueries; ++n) {
      const Vec query = load(q + n * kMaxHeadDim + i);
      for (int t = 0; t < kNumKeys; ++t) sums[n][t] = fma(query, key[t], sums[n][t]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    if constexpr (kNumKeys == 4) {
      sum_each4(sums[n], dots + n * kKvPageTokens);
    } else {
      for (int t = 0; t < kNumKeys; ++t) dots[n * kKvPageTokens + t] = sum(sums[n][t]);
    }
  }
}

/// sums[q][i] += sum_t p[q][t] v_t[i], the span's own sum formed first, over tokens in order.
template <int kQueries, int kVecs>
inline void add_values(const float* p, const bf16* v, int64_t num_tokens, int64_t dim, int64_t i,
                       float* sums) {
  Vec part[kQueries][kVecs];
  for (auto& row : part) {
    for (Vec& x : row) x = zero();
  }
  for (int64_t t = 0; t < num_tokens; ++t) {
    Vec value[kVecs];
    for (int c = 0; c < kVecs; ++c) value[c] = load(v + t * dim + i + c * kLanes);
    for (int n = 0; n < kQueries; ++n) {
      const Vec weight = broadcast(p[n * kKvPageTokens + t]);
      for (int c = 0; c < kVecs; ++c) part[n][c] = fma(weight, value[c], part[n][c]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    for (int c = 0; c < kVecs; ++c) {
      float* out = sums + n * dim + i + c * kLanes;
      store(out, add(load(out), part[n][c]));
    }
  }
}

/// fn.operator()<n>(first) over `count` heads in groups of at most kQueriesMax, evened out.
template <typename Fn>
void for_each_query_group(int64_t count, Fn fn) {
  const int64_t groups = (count + kQueriesMax - 1) / kQueriesMax;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * count / groups;
    switch ((g + 1) * count / groups - first) {
      case 1:
        fn.template operator()<1>(first);
        break;
      case 2:
        fn.template operator()<2>(first);
        break;
      case 3:
        fn.template operator()<std::min(3, kQueriesMax)>(first);
        break;
      default:
        fn.template operator()<kQueriesMax>(first);
    }
  }
}

/// Scores and statistics of row r, kQueries heads of its group from `first` on.
template <int kQueries>
void score_row(const Tile& tile, int64_t r, int64_t kv_head, int64_t first, int64_t span) {
  alignas(64) float query[kQueries * kMaxHeadDim];
  alignas(64) float dots[kQueries * kKvPageTokens];
  const int64_t dim = tile.dim();
  const int64_t tokens = tile.num_tokens(r, span);
  const bf16* q = tile.q_at(r, kv_head) + first * dim;
  const bf16* k = tile.keys(kv_head, span);
  for (int n = 0; n < kQueries; ++n) {
    for (int64_t i = 0; i < dim; i += kLanes)
      store(query + n * kMaxHeadDim + i, load(q + n * dim + i));
  }
  int64_t t = 0;
  for (; t + kKeys <= tokens; t += kKeys) {
    dots_of_keys<kQueries, kKeys>(query, k + t * dim, dim, dots + t);
  }
  for (; t < tokens; ++t) dots_of_keys<kQueries, 1>(query, k + t * dim, dim, dots + t);
  for (int n = 0; n < kQueries; ++n) {
    const int64_t at = tile.query(r, kv_head) + first + n;
    tile.set_stats(
        at, span,
        finish_scores(dots + n * kKvPageTokens, tokens, tile.scale(), tile.score_at(at, span)));
  }
}

/// Adds p v of the span to the partial sums, same heads.
template <int kQueries>
void value_row(const Tile& tile, int64_t r, int64_t kv_head, int64_t first, int64_t span) {
  alignas(64) float p[kQueries * kKvPageTokens];
  const int64_t dim = tile.dim();
  const int64_t tokens = tile.num_tokens(r, span);
  const int64_t at = tile.query(r, kv_head) + first;
  const bf16* v = tile.values(kv_head, span);
  for (int n = 0; n < kQueries; ++n) {
    form_probabilities(tile.score_at(at + n, span), tokens, tile.context_stats(r, at + n),
                       [&](int64_t t, Vec x) { store(p + n * kKvPageTokens + t, round_bf16(x)); });
  }
  int64_t i = 0;
  for (; i + kValueVecs * kLanes <= dim; i += kValueVecs * kLanes) {
    add_values<kQueries, kValueVecs>(p, v, tokens, dim, i, tile.partial_at(at, span));
  }
  for (; i < dim; i += kLanes) {
    add_values<kQueries, 1>(p, v, tokens, dim, i, tile.partial_at(at, span));
  }
}

}  // namespace internal

/// Before the passes; nothing to prepare here.
inline void prepare_queries(const Tile&) {}

/// First pass: scores and statistics of a span, for every row that reaches it.
inline void score_span(const Tile& tile, int64_t kv_head, int64_t span) {
  for (int64_t r = tile.first_row_of(span); r < tile.num_rows; ++r) {
    internal::for_each_query_group(tile.group(), [&]<int kQueries>(int64_t first) {
      internal::score_row<kQueries>(tile, r, kv_head, first, span);
    });
  }
}

/// Second pass: the span's share of o, for every row that reaches it.
inline void value_span(const Tile& tile, int64_t kv_head, int64_t span) {
  for (int64_t r = tile.first_row_of(span); r < tile.num_rows; ++r) {
    internal::for_each_query_group(tile.group(), [&]<int kQueries>(int64_t first) {
      internal::value_row<kQueries>(tile, r, kv_head, first, span);
    });
  }
}

}  // namespace sluice::SLUICE_CPU_NS
