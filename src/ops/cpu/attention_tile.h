#pragma once
// Some rows of a run with the heads of one or all kv heads, and the memory their attention needs.

#include <limits>

#include "ops/attention.h"
#include "ops/cpu/attention_scratch.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {

inline constexpr int64_t kMaxHeadDim = 256;

/// A maximum score and the sum of exp(score - maximum): of a span, or of a whole context.
struct ScoreStats {
  float max;
  float sum;
};

/// Rows [first_row, first_row + num_rows) of a run. Queries are numbered by kv head (from
/// `first_kv_head` on), then row, then head of the group.
struct Tile {
  const AttentionArgs& args;
  const RowRun& run;
  int64_t first_row;
  int64_t num_rows;
  int64_t first_kv_head;
  int64_t num_kv_heads;
  int64_t partial_spans;  // spans that keep a sum of their own; 1: all add to one
  bf16* scores = nullptr;
  float* stats = nullptr;
  float* partials = nullptr;
  bf16* panels = nullptr;

  int64_t dim() const { return args.shape.head_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(dim())); }
  int64_t group() const { return args.shape.num_heads / args.shape.num_kv_heads; }
  int64_t position(int64_t r) const { return run.position + first_row - run.first_row + r; }
  int64_t spans() const { return num_spans(position(num_rows - 1) + 1); }
  int64_t row_spans(int64_t r) const { return num_spans(position(r) + 1); }
  /// The first row that reaches a span.
  int64_t first_row_of(int64_t span) const {
    return std::max<int64_t>(0, span * kKvPageTokens - position(0));
  }
  /// Tokens of a span that row r sees.
  int64_t num_tokens(int64_t r, int64_t span) const {
    return std::min(kKvPageTokens, position(r) + 1 - span * kKvPageTokens);
  }

  int64_t kv_queries() const { return num_rows * group(); }
  int64_t num_queries() const { return num_kv_heads * kv_queries(); }
  int64_t query(int64_t r, int64_t kv_head) const { return kv_head * kv_queries() + r * group(); }
  int64_t first_head(int64_t kv_head) const { return (first_kv_head + kv_head) * group(); }

  /// head_dim values of the query's head; the heads of its group lie behind it.
  const bf16* q_at(int64_t r, int64_t kv_head) const {
    return args.q.row(first_row + r) + first_head(kv_head) * dim();
  }
  const bf16* keys(int64_t kv_head, int64_t span) const {
    return args.kv.k_row(run.page_table[span], first_kv_head + kv_head, 0);
  }
  const bf16* values(int64_t kv_head, int64_t span) const {
    return args.kv.v_row(run.page_table[span], first_kv_head + kv_head, 0);
  }

  bf16* score_at(int64_t q, int64_t span) const {
    return scores + (q * spans() + span) * kKvPageTokens;
  }
  float* max_at(int64_t q) const { return stats + q * AttentionScratch::padded(spans()); }
  float* sum_at(int64_t q) const { return max_at(num_queries() + q); }
  /// Queries of a span lie together.
  float* partial_at(int64_t q, int64_t span) const {
    return partials + (std::min(span, partial_spans - 1) * num_queries() + q) * dim();
  }
  bf16* panel_at(int64_t kv_head, int64_t panel) const {
    return panels + (kv_head * num_panels(kv_queries()) + panel) * kPanelQueries * dim();
  }

  AttentionScratch scratch() const {
    return AttentionScratch(num_kv_heads, kv_queries(), spans(), partial_spans, dim());
  }
  void place(std::byte* memory) {
    const AttentionScratch sizes = scratch();
    stats = reinterpret_cast<float*>(memory);
    partials = stats + sizes.stats;
    panels = reinterpret_cast<bf16*>(partials + sizes.partials);
    scores = panels + sizes.panels;
    std::fill_n(partials, sizes.partials, 0.0f);
  }

  void set_stats(int64_t q, int64_t span, const ScoreStats& of) const {
    max_at(q)[span] = of.max;
    sum_at(q)[span] = of.sum;
  }
  /// The whole context's maximum and sum, spans in order.
  ScoreStats context_stats(int64_t r, int64_t q) const {
    const int64_t count = row_spans(r);
    const float* max = max_at(q);
    ScoreStats all{*std::max_element(max, max + count), 0.0f};
    for (int64_t s = 0; s < count; s += kLanes) {
      alignas(64) float weight[kLanes];
      const int64_t n = std::min(kLanes, count - s);
      store(weight, exp(sub(load_upto(max + s, n), broadcast(all.max))));
      for (int64_t i = 0; i < n; ++i) all.sum += sum_at(q)[s + i] * weight[i];
    }
    return all;
  }

  /// rb(o) * rb(sigmoid(gate)), o the sum of the row's partials.
  void finish(int64_t r, int64_t kv_head) const {
    for (int64_t n = 0; n < group(); ++n) {
      const int64_t head = first_head(kv_head) + n;
      const bf16* gate = args.qg.row(first_row + r) + 2 * head * dim() + dim();
      bf16* out = args.out.row(first_row + r) + head * dim();
      for (int64_t i = 0; i < dim(); i += kLanes) {
        Vec o = zero();
        for (int64_t s = 0; s < std::min(partial_spans, row_spans(r)); ++s) {
          o = add(o, load(partial_at(query(r, kv_head) + n, s) + i));
        }
        store(out + i, mul(round_bf16(o), round_bf16(sigmoid(load(gate + i)))));
      }
    }
  }
};

/// rb( rb(dot) * scale ) of a span, kept in bf16 (exact), and their statistics. Lanes beyond the
/// span's tokens count as -inf. `dots` has room for whole vectors.
inline ScoreStats finish_scores(float* dots, int64_t num_tokens, float scale, bf16* scores) {
  const int64_t padded = (num_tokens + kLanes - 1) / kLanes * kLanes;
  std::fill(dots + num_tokens, dots + padded, -std::numeric_limits<float>::infinity());
  Vec largest = broadcast(-std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < padded; t += kLanes) {
    const Vec s = round_bf16(mul(round_bf16(load(dots + t)), broadcast(scale)));
    store(dots + t, s);
    store(scores + t, s);
    largest = max(largest, s);
  }
  const float top = max_lane(largest);
  Vec total = zero();
  for (int64_t t = 0; t < padded; t += kLanes) {
    total = add(total, exp(sub(load(dots + t), broadcast(top))));
  }
  return {top, sum(total)};
}

/// exp(score - max) / sum over whole vectors; the caller's store rounds to bf16.
template <typename Store>
inline void form_probabilities(const bf16* scores, int64_t num_tokens, const ScoreStats& context,
                               Store store_lanes) {
  const Vec top = broadcast(context.max);
  const Vec total = broadcast(context.sum);
  for (int64_t t = 0; t < num_tokens; t += kLanes) {
    store_lanes(t, div(exp(sub(load(scores + t), top)), total));
  }
}

}  // namespace sluice::SLUICE_CPU_NS
