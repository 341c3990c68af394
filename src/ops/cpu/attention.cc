// Implements attention of ops/attention.h. Test: tests/ops attention. Log: attention.log.md.
// Idea: two passes over the context in spans of a page. The first keeps rounded scores (bf16, exact)
// and each span's maximum and sum; the second forms rounded probabilities from the context's
// maximum and sum and adds values. All heads of a key-value head go together, so keys and values
// stream once; a tile of rows takes each span from L2.
// Accumulation: within a span in a fixed order (attention_span.h), spans in order. Both ways of
// spreading the work, by tiles of rows or by spans, form the same sums.
#include "ops/cpu/attention_scratch.h"
#include "ops/cpu/attention_span.h"
#include "ops/cpu/cpu_kernels.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

/// Rows [first_row, first_row + num_rows) of a run, and the memory of their queries: for each row
/// `num_kv_heads * group` of them, from kv head `first_kv_head` on.
struct Tile {
  const AttentionArgs& args;
  const RowRun& run;
  int64_t first_row;
  int64_t num_rows;
  int64_t first_kv_head;
  int64_t num_kv_heads;
  int64_t partial_spans;  // spans that keep a sum of their own; 1: all add to one
  bf16* scores = nullptr;
  SpanStats* stats = nullptr;
  float* partials = nullptr;

  int64_t dim() const { return args.shape.head_dim; }
  int64_t group() const { return args.shape.num_heads / args.shape.num_kv_heads; }
  int64_t num_queries() const { return num_rows * num_kv_heads * group(); }
  int64_t position(int64_t r) const { return run.position + first_row - run.first_row + r; }
  int64_t spans() const { return num_spans(position(num_rows - 1) + 1); }
  int64_t row_spans(int64_t r) const { return num_spans(position(r) + 1); }
  int64_t query(int64_t r, int64_t kv_head) const { return (r * num_kv_heads + kv_head) * group(); }
  int64_t first_head(int64_t kv_head) const { return (first_kv_head + kv_head) * group(); }

  bf16* score_at(int64_t q, int64_t span) const {
    return scores + (q * spans() + span) * kKvPageTokens;
  }
  SpanStats* stats_at(int64_t q, int64_t span) const { return stats + q * spans() + span; }
  /// Queries of a span lie together, so that a group's sums are [queries, head_dim].
  float* partial_at(int64_t q, int64_t span) const {
    return partials + (std::min(span, partial_spans - 1) * num_queries() + q) * dim();
  }

  AttentionScratch scratch() const {
    return AttentionScratch(num_queries(), spans(), partial_spans, dim());
  }
  void place(std::byte* memory) {
    const AttentionScratch sizes = scratch();
    partials = reinterpret_cast<float*>(memory);
    stats = reinterpret_cast<SpanStats*>(partials + sizes.partials);
    scores = reinterpret_cast<bf16*>(partials + sizes.partials + sizes.stats);
  }

  SpanView span_view(int64_t r, int64_t span, const bf16* rows) const {
    return {rows, std::min(kKvPageTokens, position(r) + 1 - span * kKvPageTokens), dim()};
  }
  /// First pass of row r over a span it reaches.
  void score(int64_t r, int64_t kv_head, int64_t span) const {
    const bf16* keys = args.kv.k_row(run.page_table[span], first_kv_head + kv_head, 0);
    const float scale = 1.0f / std::sqrt(static_cast<float>(dim()));
    for_each_query_group(group(), [&]<int kQueries>(int64_t first) {
      const int64_t q = query(r, kv_head) + first;
      score_span<kQueries>(args.q.row(first_row + r) + (first_head(kv_head) + first) * dim(),
                           span_view(r, span, keys), scale, score_at(q, span),
                           spans() * kKvPageTokens, stats_at(q, span), spans());
    });
  }

  /// The whole context's maximum and sum, spans in order.
  SpanStats context_stats(int64_t r, int64_t q) const {
    const SpanStats* of = stats_at(q, 0);
    SpanStats all{of[0].max, 0.0f};
    for (int64_t s = 1; s < row_spans(r); ++s) all.max = std::max(all.max, of[s].max);
    alignas(64) float weight[kLanes];
    for (int64_t s = 0; s < row_spans(r); ++s) {
      store(weight, exp(broadcast(of[s].max - all.max)));
      all.sum += of[s].sum * weight[0];
    }
    return all;
  }

  /// Second pass of row r over a span it reaches.
  void add_values(int64_t r, int64_t kv_head, int64_t span) const {
    const bf16* values = args.kv.v_row(run.page_table[span], first_kv_head + kv_head, 0);
    for_each_query_group(group(), [&]<int kQueries>(int64_t first) {
      const int64_t q = query(r, kv_head) + first;
      SpanStats of[kQueries];
      for (int n = 0; n < kQueries; ++n) of[n] = context_stats(r, q + n);
      value_span<kQueries>(score_at(q, span), spans() * kKvPageTokens, of,
                           span_view(r, span, values), partial_at(q, span));
    });
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

  void clear_partials() const {
    std::fill_n(partials, partial_spans * num_queries() * dim(), 0.0f);
  }
};

/// All of a tile on one thread, spans outermost: a span's keys serve every row from L2.
void run_tile(const Tile& tile) {
  tile.clear_partials();
  const auto for_each_row_of_spans = [&](auto pass) {
    for (int64_t span = 0; span < tile.spans(); ++span) {
      for (int64_t r = 0; r < tile.num_rows; ++r) {
        if (span < tile.row_spans(r)) pass(r, span);
      }
    }
  };
  for_each_row_of_spans([&](int64_t r, int64_t span) { tile.score(r, 0, span); });
  for_each_row_of_spans([&](int64_t r, int64_t span) { tile.add_values(r, 0, span); });
  for (int64_t r = 0; r < tile.num_rows; ++r) tile.finish(r, 0);
}

int64_t group_of(const AttentionShape& shape) {
  return shape.num_heads / shape.num_kv_heads;
}

int64_t run_spans(const RowRun& run) {
  return num_spans(run.position + run.num_rows);
}

/// The tiles of a call: per run, kv head and block of rows.
struct Tiling {
  explicit Tiling(const AttentionArgs& a) : args(a) {
    for (const RowRun& run : args.runs) {
      spans = std::max(spans, run_spans(run));
      num_rows = std::max<int64_t>(num_rows, run.num_rows);
    }
    rows = std::min(tile_rows(group_of(args.shape), spans), num_rows);
    for (const RowRun& run : args.runs) num_tiles += tiles_of(run);
  }
  int64_t blocks_of(const RowRun& run) const { return (run.num_rows + rows - 1) / rows; }
  int64_t tiles_of(const RowRun& run) const { return blocks_of(run) * args.shape.num_kv_heads; }

  /// Tile `index`, a run's last rows first: they have the most to do.
  Tile tile(int64_t index) const {
    const RowRun* run = args.runs.data();
    for (; index >= tiles_of(*run); ++run) index -= tiles_of(*run);
    const int64_t block = blocks_of(*run) - 1 - index / args.shape.num_kv_heads;
    return {.args = args,
            .run = *run,
            .first_row = run->first_row + block * rows,
            .num_rows = std::min(rows, run->num_rows - block * rows),
            .first_kv_head = index % args.shape.num_kv_heads,
            .num_kv_heads = 1,
            .partial_spans = 1};
  }

  const AttentionArgs& args;
  int64_t spans = 0;
  int64_t num_rows = 0;  // of the longest run
  int64_t rows = 0;      // of a tile
  int64_t num_tiles = 0;
};

void attend_by_tiles(const Tiling& tiling, OpContext& context) {
  Arena::Scope scope(*context.scratch);
  const AttentionShape& shape = tiling.args.shape;
  const AttentionScratch sizes(tiling.rows * group_of(shape), tiling.spans, 1, shape.head_dim);
  const int64_t per_worker = sizes.num_bytes();
  std::byte* memory = context.scratch->take<std::byte>(context.pool->num_threads() * per_worker);
  context.pool->parallel_for(tiling.num_tiles, [&](int64_t index, int worker) {
    Tile tile = tiling.tile(index);
    tile.place(memory + worker * per_worker);
    run_tile(tile);
  });
}

/// Few rows, long context: the spans of each kv head are the tasks.
void attend_by_spans(const AttentionArgs& args, const RowRun& run, int64_t first_row,
                     int64_t num_rows, OpContext& context) {
  Arena::Scope scope(*context.scratch);
  Tile tile{.args = args,
            .run = run,
            .first_row = first_row,
            .num_rows = num_rows,
            .first_kv_head = 0,
            .num_kv_heads = args.shape.num_kv_heads,
            .partial_spans = 1};
  tile.partial_spans = tile.spans();
  tile.place(context.scratch->take<std::byte>(tile.scratch().num_bytes()));
  tile.clear_partials();
  const auto for_each_task = [&](auto pass) {
    context.pool->parallel_for(tile.spans() * tile.num_kv_heads, [&](int64_t task, int) {
      const int64_t span = task / tile.num_kv_heads;
      for (int64_t r = 0; r < num_rows; ++r) {
        if (span < tile.row_spans(r)) pass(r, task % tile.num_kv_heads, span);
      }
    });
  };
  for_each_task([&](int64_t r, int64_t kv, int64_t span) { tile.score(r, kv, span); });
  for_each_task([&](int64_t r, int64_t kv, int64_t span) { tile.add_values(r, kv, span); });
  context.pool->parallel_for(num_rows * tile.num_kv_heads, [&](int64_t task, int) {
    tile.finish(task / tile.num_kv_heads, task % tile.num_kv_heads);
  });
}

}  // namespace

void attention(const AttentionArgs& args, OpContext& context) {
  const Tiling tiling(args);
  const int64_t threads = context.pool->num_threads();
  // By tiles where they fill the pool; an odd tile out costs less than the other way's two more
  // joins (estimated).
  const bool fills = tiling.num_tiles == threads || tiling.num_tiles >= 2 * threads;
  if (fills || tiling.spans == 1) return attend_by_tiles(tiling, context);
  for (const RowRun& run : args.runs) {
    const int64_t rows = tile_rows(args.shape.num_heads, run_spans(run));
    for (int64_t r = 0; r < run.num_rows; r += rows) {
      attend_by_spans(args, run, run.first_row + r, std::min<int64_t>(rows, run.num_rows - r),
                      context);
    }
  }
}

}  // namespace sluice::SLUICE_CPU_NS
