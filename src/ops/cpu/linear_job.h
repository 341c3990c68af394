#pragma once
// What the linears of every instruction set share: a call as a list of units of output rows, the queue that hands them
// to workers, and what happens to finished sums.
//
// Everything lies in the instruction set's own namespace: each compiles its own copy.

#include <algorithm>
#include <atomic>

#include "ops/cpu/vec.h"
#include "ops/linear.h"

namespace sluice::SLUICE_CPU_NS {

/// Output rows of a tile: what one accumulator row holds.
constexpr int64_t kOutTile = 16;
static_assert(kOutTile == kLanes, "a tile's row is finished as one vector");
/// Tiles of a unit. Two, so that gate and up of the same outputs meet in one unit.
constexpr int64_t kUnitTiles = 2;

/// Sums of a tile, [row][output].
using TileSums = float[kOutTile];

enum class Finish { kStore, kAddToOut, kSiluMul };

/// linear, linear_residual and gate_up in one form. For kSiluMul the two projections are gate and up, alike in shape
/// and with the same `out`.
struct LinearJob {
  MatView<const bf16> x;
  std::span<const Projection> projections;
  Finish finish = Finish::kStore;
};

/// kOutTile (or, at the edge, fewer) output rows of one projection.
struct OutTile {
  const Projection* projection = nullptr;
  int64_t first_out = 0;
  int64_t num_out = 0;  // 0: no such tile

  const WeightView& weight() const { return projection->weight; }
  /// Bytes of a weight row, and where the tile's first one starts.
  int64_t row_bytes() const {
    return weight().num_in * (weight().format == WeightFormat::kBf16 ? 2 : 1);
  }
  const std::byte* data() const {
    return static_cast<const std::byte*>(weight().data) + first_out * row_bytes();
  }
  /// One a 128-block of k: a tile never crosses a block of output rows.
  const float* scales() const {
    return weight().scales + first_out / kFp8BlockSize * weight().scale_cols();
  }
  bool is_fp8() const { return weight().format == WeightFormat::kFp8Block128; }
};
static_assert(kFp8BlockSize % kOutTile == 0, "OutTile::scales");

/// The work that is handed out: two tiles in a row of one projection, or the same tile of gate and up.
struct Unit {
  OutTile tiles[kUnitTiles];
};

inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

inline OutTile tile_of(const Projection& p, int64_t idx) {
  const int64_t first = idx * kOutTile;
  return {&p, first, std::clamp<int64_t>(p.weight.num_out - first, 0, kOutTile)};
}

inline int64_t num_units(const Projection& p) {
  return ceil_div(p.weight.num_out, kUnitTiles * kOutTile);
}

inline int64_t num_units(const LinearJob& job) {
  if (job.finish == Finish::kSiluMul) return ceil_div(job.projections[0].weight.num_out, kOutTile);
  int64_t sum = 0;
  for (const Projection& p : job.projections) sum += num_units(p);
  return sum;
}

/// Unit `idx` of the projections laid end to end.
inline Unit unit_at(const LinearJob& job, int64_t idx) {
  const Projection* p = job.projections.data();
  if (job.finish == Finish::kSiluMul) return {{tile_of(p[0], idx), tile_of(p[1], idx)}};
  while (idx >= num_units(*p)) idx -= num_units(*p++);
  return {{tile_of(*p, idx * kUnitTiles), tile_of(*p, idx * kUnitTiles + 1)}};
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

/// Hands out units in order, `step` at a time. A worker claims its next range before it works on the one in hand, so
/// that it knows what to prefetch.
class UnitQueue {
 public:
  UnitQueue(const LinearJob& job, int64_t step) : num_units_(num_units(job)), step_(step) {}

  struct Range {
    int64_t first = 0;
    int64_t end = 0;
    bool empty() const { return first >= end; }
  };
  Range claim() {
    const int64_t first = next_.fetch_add(step_, std::memory_order_relaxed);
    return {first, std::min(first + step_, num_units_)};
  }
  int64_t num_ranges() const { return ceil_div(num_units_, step_); }

 private:
  std::atomic<int64_t> next_{0};
  int64_t num_units_;
  int64_t step_;
};

/// Runs fn(range, next, worker) over all ranges of the job; `next` is what this worker does after `range`.
/// enter() and leave() bracket what one worker does.
template <typename Fn, typename Enter, typename Leave>
void for_each_range(const LinearJob& job, int64_t step, OpContext& ctx, Enter enter, Fn fn,
                    Leave leave) {
  UnitQueue queue(job, step);
  const int64_t workers = std::min<int64_t>(ctx.pool->num_threads(), queue.num_ranges());
  ctx.pool->parallel_for(workers, [&](int64_t, int worker) {
    enter();
    for (UnitQueue::Range range = queue.claim(); !range.empty();) {
      const UnitQueue::Range next = queue.claim();
      fn(range, next, worker);
      range = next;
    }
    leave();
  });
}

/// Without anything to set up a worker for, one unit at a time.
template <typename Fn>
void for_each_unit(const LinearJob& job, OpContext& ctx, Fn fn) {
  const auto nothing = [] {};
  for_each_range(
      job, 1, ctx, nothing,
      [&](UnitQueue::Range range, UnitQueue::Range, int worker) {
        fn(unit_at(job, range.first), worker);
      },
      nothing);
}

template <Finish kFinish>
inline Vec finished(Vec sum, Vec up, Vec before) {
  switch (kFinish) {
    case Finish::kStore:
      return sum;
    case Finish::kAddToOut:
      return add(before, round_bf16(sum));
    case Finish::kSiluMul:
      return mul(round_bf16(silu(round_bf16(sum))), round_bf16(up));
  }
}

template <Finish kFinish>
inline void finish_row(const TileSums& sums, const TileSums& up, bf16* out, int64_t num_out) {
  const bool adds = kFinish == Finish::kAddToOut;
  if (num_out == kOutTile) {
    store(out, finished<kFinish>(load(sums), load(up), adds ? load(out) : zero()));
  } else {
    const Vec before = adds ? load_first(out, num_out) : zero();
    store_first(out, finished<kFinish>(load(sums), load(up), before), num_out);
  }
}

template <Finish kFinish>
inline void finish_tile(const OutTile& tile, int64_t first_row, int64_t num_rows,
                        const TileSums* sums, const TileSums* up) {
  const MatView<bf16>& out = tile.projection->out;
  for (int64_t r = 0; r < num_rows; ++r) {
    finish_row<kFinish>(sums[r], up[r], out.row(first_row + r) + tile.first_out, tile.num_out);
  }
}

/// Rounds and stores rows [first_row, first_row + num_rows) of a unit from its tiles' sums.
inline void finish_unit(const LinearJob& job, const Unit& unit, int64_t first_row, int64_t num_rows,
                        const TileSums* const (&sums)[kUnitTiles]) {
  if (job.finish == Finish::kSiluMul) {
    return finish_tile<Finish::kSiluMul>(unit.tiles[0], first_row, num_rows, sums[0], sums[1]);
  }
  for (int t = 0; t < kUnitTiles && unit.tiles[t].num_out > 0; ++t) {
    const auto finish =
        job.finish == Finish::kStore ? finish_tile<Finish::kStore> : finish_tile<Finish::kAddToOut>;
    finish(unit.tiles[t], first_row, num_rows, sums[t], sums[t]);
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

}  // namespace sluice::SLUICE_CPU_NS
