#pragma once
// One row against one span of the context, for the heads that share a key-value head: the two passes
// of attention.cc are loops over these.

#include <limits>

#include "ops/attention.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {

inline constexpr int64_t kMaxHeadDim = 256;

#if defined(__AVX512F__)
inline constexpr int kQueriesMax = 4;  // 4 queries x 4 keys, 4 queries x 4 vectors of values
inline constexpr int kKeys = 4;
inline constexpr int kValueVecs = 4;
#else
inline constexpr int kQueriesMax = 2;
inline constexpr int kKeys = 2;
inline constexpr int kValueVecs = 2;
#endif

/// The span's maximum score and its sum of exp(score - maximum).
struct SpanStats {
  float max;
  float sum;
};

/// `num_tokens` keys or values of a page, one after the other.
struct SpanView {
  const bf16* rows;
  int64_t num_tokens;
  int64_t head_dim;
};

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

/// rb( rb(dot) * scale ) of the span, kept in bf16 (exact), and their statistics. Lanes beyond the
/// span's tokens count as -inf.
inline SpanStats finish_scores(float* dots, int64_t num_tokens, float scale, bf16* scores) {
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  std::fill(dots + num_tokens, dots + padded, -std::numeric_limits<float>::infinity());
  Vec largest = broadcast(-std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < padded; t += kLanes) {
    const Vec s = round_bf16(mul(round_bf16(load(dots + t)), broadcast(scale)));
    store(scores + t, s);
    largest = max(largest, s);
  }
  const float top = max_lane(largest);
  Vec total = zero();
  for (int64_t t = 0; t < padded; t += kLanes) {
    total = add(total, exp(sub(load(scores + t), broadcast(top))));
  }
  return {top, sum(total)};
}

/// sums[q][i] += sum_t p[q][t] v_t[i], the span's own sum formed first, over tokens in order.
template <int kQueries, int kVecs>
inline void add_values(const float* p, const SpanView& v, int64_t i, float* sums) {
  Vec part[kQueries][kVecs];
  for (auto& row : part) {
    for (Vec& x : row) x = zero();
  }
  for (int64_t t = 0; t < v.num_tokens; ++t) {
    Vec value[kVecs];
    for (int c = 0; c < kVecs; ++c) value[c] = load(v.rows + t * v.head_dim + i + c * kLanes);
    for (int n = 0; n < kQueries; ++n) {
      const Vec weight = broadcast(p[n * kKvPageTokens + t]);
      for (int c = 0; c < kVecs; ++c) part[n][c] = fma(weight, value[c], part[n][c]);
    }
  }
  for (int n = 0; n < kQueries; ++n) {
    for (int c = 0; c < kVecs; ++c) {
      float* out = sums + n * v.head_dim + i + c * kLanes;
      store(out, add(load(out), part[n][c]));
    }
  }
}

}  // namespace internal

/// First pass for kQueries consecutive heads: scores and statistics of the span.
/// q [kQueries, head_dim] bf16; scores, stats by query with the given strides.
template <int kQueries>
void score_span(const bf16* q, const SpanView& k, float scale, bf16* scores, int64_t score_stride,
                SpanStats* stats, int64_t stat_stride) {
  alignas(64) float query[kQueries * kMaxHeadDim];
  alignas(64) float dots[kQueries * kKvPageTokens];
  for (int n = 0; n < kQueries; ++n) {
    for (int64_t i = 0; i < k.head_dim; i += kLanes) {
      store(query + n * kMaxHeadDim + i, load(q + n * k.head_dim + i));
    }
  }
  int64_t t = 0;
  for (; t + kKeys <= k.num_tokens; t += kKeys) {
    internal::dots_of_keys<kQueries, kKeys>(query, k.rows + t * k.head_dim, k.head_dim, dots + t);
  }
  for (; t < k.num_tokens; ++t) {
    internal::dots_of_keys<kQueries, 1>(query, k.rows + t * k.head_dim, k.head_dim, dots + t);
  }
  for (int n = 0; n < kQueries; ++n) {
    stats[n * stat_stride] = internal::finish_scores(dots + n * kKvPageTokens, k.num_tokens, scale,
                                                     scores + n * score_stride);
  }
}

/// Second pass: sums += p v over the span, p = rb( exp(score - max) / sum ) with the context's
/// statistics. sums [kQueries, head_dim].
template <int kQueries>
void value_span(const bf16* scores, int64_t score_stride, const SpanStats* context_stats,
                const SpanView& v, float* sums) {
  alignas(64) float p[kQueries * kKvPageTokens];
  for (int n = 0; n < kQueries; ++n) {
    const Vec top = broadcast(context_stats[n].max);
    const Vec total = broadcast(context_stats[n].sum);
    for (int64_t t = 0; t < v.num_tokens; t += kLanes) {
      const Vec e = exp(sub(load(scores + n * score_stride + t), top));
      store(p + n * kKvPageTokens + t, round_bf16(div(e, total)));
    }
  }
  int64_t i = 0;
  for (; i + kValueVecs * kLanes <= v.head_dim; i += kValueVecs * kLanes) {
    internal::add_values<kQueries, kValueVecs>(p, v, i, sums);
  }
  for (; i < v.head_dim; i += kLanes) internal::add_values<kQueries, 1>(p, v, i, sums);
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

}  // namespace sluice::SLUICE_CPU_NS
