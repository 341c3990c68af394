// linear_amx.cc - implements ops/linear.h for AMX_BF16. Test: tests/ops linear. Bench: bench/kernels linear.
// Idea: the weights are the left operand, 16 output rows by 32 k straight from the stored rows; x is the right one, in
// panels of up to 16 rows packed once a call. One row and many run the same tile instructions.
// Accumulation: fp32 inside the tile, k ascending. FP8 codes are widened to bf16 (exact); each 128-block sums into a
// zeroed tile, and total = fma(scale, block, total). A tile's element depends on its own row and output only, so bits
// depend on nothing else. The tile unit flushes subnormal inputs and sums to zero.
#include <immintrin.h>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/linear_amx_few.h"
#include "ops/cpu/linear_amx_many.h"
#include "ops/cpu/linear_job.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

static_assert(sizeof(ManyScratch) <= kLinearWorkerBytes, "the scratch bound counts on it");
/// x beyond this size shares L2 with nothing: units then pass by a chunk of it in groups.
constexpr int64_t kPanelBytesInL2 = int64_t{5} << 18;

Panels pack(MatView<const bf16> x, OpContext& ctx) {
  constexpr int64_t kTaskSteps = 256;
  if (x.num_rows == 1) return {x.data, 1, x.num_cols};
  const int64_t cols = panel_cols(x.num_rows);
  const int64_t steps = x.num_cols / kTileK;
  const int64_t panels = ceil_div(x.num_rows, kPanelRows);
  const int64_t per_panel = ceil_div(steps, kTaskSteps);
  bf16* data = ctx.scratch->take<bf16>(panels * cols * x.num_cols);
  ctx.pool->parallel_for(panels * per_panel, [&](int64_t task, int) {
    const int64_t panel = task / per_panel;
    const int64_t first = task % per_panel * kTaskSteps;
    pack_panel(x, panel, first, std::min(steps, first + kTaskSteps), cols,
               data + panel * cols * x.num_cols);
  });
  return {data, cols, x.num_cols};
}

void run_few(const LinearJob& job, const Panels& x, OpContext& ctx) {
  for_each_range(
      job, 1, ctx, [&] { configure_tiles(kFullTiles, x.cols); },
      [&](UnitQueue::Range range, UnitQueue::Range next, int) {
        run_unit_few(job, unit_at(job, range.first),
                     next.empty() ? Unit{} : unit_at(job, next.first), x);
      },
      [] { tile_release(); });
}

int64_t group_size(const LinearJob& job, int num_threads) {
  if (job.x.num_rows * job.x.num_cols * 2 <= kPanelBytesInL2) return 1;
  return std::clamp<int64_t>(num_units(job) / (2 * num_threads), 1, kGroupUnits);
}

void run_many(const LinearJob& job, const Panels& x, OpContext& ctx) {
  ManyScratch* scratch = ctx.scratch->take<ManyScratch>(ctx.pool->num_threads());
  for_each_range(
      job, group_size(job, ctx.pool->num_threads()), ctx,
      [&] { configure_tiles(kFullTiles, x.cols); },
      [&](UnitQueue::Range range, UnitQueue::Range next, int worker) {
        run_group_many(job, range, next, x, scratch[worker]);
      },
      [] { tile_release(); });
}

void run(const LinearJob& job, OpContext& ctx) {
  check_job(job);
  Arena::Scope scope(*ctx.scratch);
  const Panels x = pack(job.x, ctx);
  if (job.x.num_rows <= kPanelRows) {
    run_few(job, x, ctx);
  } else {
    run_many(job, x, ctx);
  }
}

}  // namespace

void linear(const LinearArgs& args, OpContext& ctx) {
  run_linear(args, ctx, run);
}
void linear_residual(const LinearResidualArgs& args, OpContext& ctx) {
  run_linear_residual(args, ctx, run);
}
void gate_up(const GateUpArgs& args, OpContext& ctx) {
  run_gate_up(args, ctx, run);
}

}  // namespace sluice::SLUICE_CPU_NS
