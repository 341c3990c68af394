// Implements attention of ops/attention.h. Test: tests/ops attention. Log: attention.log.md.
// Idea: two passes over the context in spans of a page. The first keeps rounded scores (bf16, exact)
// and each span's maximum and sum; the second forms rounded probabilities from the context's
// maximum and sum and adds values. All heads of a key-value head go together, so keys and values
// stream once; a tile of rows takes each span from L2.
// Accumulation: within a span in a fixed order (attention_vec.h, attention_amx.h), spans in order. Both ways of
// spreading the work, by tiles of rows or by spans, form the same sums.
#include "ops/cpu/cpu_kernels.h"
#if defined(__AMX_BF16__)
#include "ops/cpu/attention_amx.h"
#else
#include "ops/cpu/attention_vec.h"
#endif

namespace sluice::SLUICE_CPU_NS {
namespace {

/// All of a tile on one thread, spans outermost: a span's keys serve every row from L2.
void run_tile(const Tile& tile) {
  prepare_queries(tile);
  for (int64_t span = 0; span < tile.spans(); ++span) score_span(tile, 0, span);
  for (int64_t span = 0; span < tile.spans(); ++span) value_span(tile, 0, span);
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
  const AttentionScratch sizes(1, tiling.rows * group_of(shape), tiling.spans, 1, shape.head_dim);
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
  prepare_queries(tile);
  const int64_t num_tasks = tile.spans() * tile.num_kv_heads;
  context.pool->parallel_for(num_tasks, [&](int64_t task, int) {
    score_span(tile, task % tile.num_kv_heads, task / tile.num_kv_heads);
  });
  context.pool->parallel_for(num_tasks, [&](int64_t task, int) {
    value_span(tile, task % tile.num_kv_heads, task / tile.num_kv_heads);
  });
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
