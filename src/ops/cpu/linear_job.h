#pragma once
// What the linears of every instruction set share: a call as a list of output tiles, and what happens to a finished
// tile.
//
// Everything here has internal linkage on purpose: each instruction set compiles its own copy.

#include <algorithm>

#include "ops/cpu/vec_math.h"
#include "ops/linear.h"

namespace sluice {
namespace {

/// Output rows of a tile: the unit of work, and the width of an accumulator row.
constexpr int64_t kOutTile = 16;
/// Tasks a worker gets on average: enough to balance, few enough that each streams a long stretch.
constexpr int64_t kTasksPerWorker = 4;

enum class Finish { kStore, kAddToOut, kSiluMul };

/// linear, linear_residual and gate_up in one form. For kSiluMul the two projections are gate and up, alike in shape
/// and with the same `out`; a tile then means both.
struct LinearJob {
  MatView<const bf16> x;
  std::span<const Projection> projections;
  Finish finish = Finish::kStore;
};

/// kOutTile (or, at the edge, fewer) output rows of one projection.
struct OutTile {
  const Projection* projection = nullptr;
  int64_t first_out = 0;
  int64_t num_out = 0;
};

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline int64_t num_tiles(const WeightView& weight) {
  return ceil_div(weight.num_out, kOutTile);
}

inline int64_t num_tiles(const LinearJob& job) {
  if (job.finish == Finish::kSiluMul) return num_tiles(job.projections[0].weight);
  int64_t sum = 0;
  for (const Projection& p : job.projections) sum += num_tiles(p.weight);
  return sum;
}

/// Tile `idx` of the projections laid end to end.
inline OutTile tile_at(const LinearJob& job, int64_t idx) {
  const Projection* p = job.projections.data();
  while (idx >= num_tiles(p->weight)) idx -= num_tiles((p++)->weight);
  const int64_t first = idx * kOutTile;
  return {p, first, std::min(kOutTile, p->weight.num_out - first)};
}

inline bool has_fp8(const LinearJob& job) {
  return std::any_of(job.projections.begin(), job.projections.end(), [](const Projection& p) {
    return p.weight.format == WeightFormat::kFp8Block128;
  });
}

inline void check_job(const LinearJob& job) {
  for (const Projection& p : job.projections) {
    SLUICE_CHECK_EQ(p.weight.num_in, job.x.num_cols);
    SLUICE_CHECK_EQ(p.weight.num_in % (p.weight.format == WeightFormat::kBf16 ? 32 : kFp8BlockSize),
                    0);
    SLUICE_CHECK_EQ(p.out.num_rows, job.x.num_rows);
    SLUICE_CHECK_EQ(p.out.num_cols, p.weight.num_out);
  }
}

/// Calls fn(first_tile, end_tile, worker) over consecutive ranges of the job's tiles, in parallel.
template <typename Fn>
void for_each_tile_range(const LinearJob& job, OpContext& ctx, Fn&& fn) {
  const int64_t tiles = num_tiles(job);
  const int64_t per_task =
      std::max<int64_t>(1, tiles / (ctx.pool->num_threads() * kTasksPerWorker));
  ctx.pool->parallel_for(ceil_div(tiles, per_task), [&](int64_t task, int worker) {
    fn(task * per_task, std::min(tiles, (task + 1) * per_task), worker);
  });
}

/// Rounds and stores rows [first_row, first_row + num_rows) of a tile from its sums, sums[row][out of tile]; `up` is
/// the second projection's, for kSiluMul only.
inline void finish_tile(const LinearJob& job, const OutTile& tile, int64_t first_row,
                        int64_t num_rows, const float (*sums)[kOutTile],
                        const float (*up)[kOutTile]) {
  for (int64_t r = 0; r < num_rows; ++r) {
    bf16* out = tile.projection->out.row(first_row + r) + tile.first_out;
    bf16 result[kOutTile];
    const bf16* before = out;
    bf16 padded[kOutTile] = {};
    if (job.finish == Finish::kAddToOut && tile.num_out < kOutTile) {
      std::copy_n(out, tile.num_out, padded);
      before = padded;
    }
    switch (job.finish) {
      case Finish::kStore:
        for (int64_t n = 0; n < kOutTile; ++n) result[n] = vec_bf16(sums[r][n]);
        break;
      case Finish::kAddToOut:
        for (int64_t n = 0; n < kOutTile; ++n)
          result[n] = vec_bf16(to_float(before[n]) + vec_rb(sums[r][n]));
        break;
      case Finish::kSiluMul:
        for (int64_t n = 0; n < kOutTile; ++n) {
          result[n] = vec_bf16(vec_rb(vec_silu(vec_rb(sums[r][n]))) * vec_rb(up[r][n]));
        }
        break;
    }
    std::copy_n(result, tile.num_out, out);
  }
}

/// The three ops as jobs for run(job, ctx).
template <typename Run>
void run_linear(const LinearArgs& args, OpContext& ctx, Run run) {
  run(LinearJob{args.x, args.projections, Finish::kStore}, ctx);
}

template <typename Run>
void run_linear_residual(const LinearResidualArgs& args, OpContext& ctx, Run run) {
  const Projection projection{args.weight, args.residual};
  run(LinearJob{args.x, {&projection, 1}, Finish::kAddToOut}, ctx);
}

template <typename Run>
void run_gate_up(const GateUpArgs& args, OpContext& ctx, Run run) {
  SLUICE_CHECK_EQ(args.gate.num_out, args.up.num_out);
  const Projection both[2] = {{args.gate, args.out}, {args.up, args.out}};
  run(LinearJob{args.x, both, Finish::kSiluMul}, ctx);
}

}  // namespace
}  // namespace sluice
