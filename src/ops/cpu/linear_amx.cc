// linear_amx.cc - implements ops/linear.h for AMX_BF16. Test: tests/ops linear. Bench: bench/kernels linear.
// Idea: the weights are the left operand, 16 output rows by 32 k straight from the stored rows; x is the right one, in
// panels of up to 16 rows packed once a call. One row and many run the same tile instructions.
// Accumulation: fp32 inside the tile, k ascending. FP8 codes are widened to bf16 (exact); each 128-block sums into a
// zeroed tile, and total = fma(scale, block, total). A tile's element depends on its own row and output only, so bits
// depend on nothing else. The tile unit flushes subnormal inputs and sums to zero.
#include <immintrin.h>

#include <bit>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/linear_job.h"
#include "ops/cpu/linear_vec_lanes.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

constexpr int64_t kPanelRows = 16;
constexpr int64_t kTileK = 32;
constexpr int64_t kTileBytes = 64;  // a tile row

// Tile registers, whose numbers the intrinsics want as literals: sums 0 to 3, weights 4 and 5, x 6 and 7.
constexpr int kFirstWeightTile = 4, kFirstXTile = 6;

/// x as right operands: panel p holds rows [16 p, 16 p + 16) as [num_in / 2][cols] pairs of bf16.
struct Panels {
  const bf16* data = nullptr;
  int64_t cols = kPanelRows;  // of every panel; missing rows are zero
  int64_t num_in = 0;
  const bf16* panel(int64_t p) const { return data + p * cols * num_in; }
};

/// One row needs no packing, a few rows a narrow panel; beyond, panels are full.
int64_t panel_cols(int64_t num_rows) {
  return num_rows >= kPanelRows
             ? kPanelRows
             : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_rows)));
}

void pack_panel(MatView<const bf16> x, int64_t panel, int64_t cols, bf16* out) {
  const int64_t first = panel * kPanelRows;
  const int64_t rows = std::min(cols, x.num_rows - first);
  for (int64_t k = 0; k < x.num_cols; k += 2) {
    for (int64_t r = 0; r < cols; ++r) {
      *out++ = r < rows ? x.row(first + r)[k] : bf16{};
      *out++ = r < rows ? x.row(first + r)[k + 1] : bf16{};
    }
  }
}

Panels pack(MatView<const bf16> x, OpContext& ctx) {
  if (x.num_rows == 1) return {x.data, 1, x.num_cols};
  const int64_t cols = panel_cols(x.num_rows);
  const int64_t count = ceil_div(x.num_rows, kPanelRows);
  bf16* data = ctx.scratch->take<bf16>(count * cols * x.num_cols);
  ctx.pool->parallel_for(
      count, [&](int64_t p, int) { pack_panel(x, p, cols, data + p * cols * x.num_cols); });
  return {data, cols, x.num_cols};
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Shapes the tile registers for num_out outputs by cols rows of x.
void configure(int64_t num_out, int64_t cols) {
  TileConfig config;
  const auto set = [&](int tile, int64_t rows, int64_t row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  for (int i = 0; i < kFirstWeightTile; ++i) set(i, num_out, 4 * cols);
  for (int i = kFirstWeightTile; i < kFirstXTile; ++i) set(i, num_out, kTileBytes);
  for (int i = kFirstXTile; i < 8; ++i) set(i, kTileK / 2, 4 * cols);
  _tile_loadconfig(&config);
}

/// sums[out][col] over k in [begin, end).
void multiply(const bf16* w, int64_t num_in, const bf16* panel, int64_t cols, int64_t begin,
              int64_t end, float* sums) {
  _tile_zero(0);
  for (int64_t k = begin; k < end; k += kTileK) {
    _tile_loadd(4, w + k, num_in * 2);
    _tile_loadd(6, panel + k * cols, cols * 4);
    _tile_dpbf16ps(0, 4, 6);
  }
  _tile_stored(0, sums, cols * 4);
}

void multiply_scaled(const bf16* w, const float* scales, int64_t num_in, const bf16* panel,
                     int64_t cols, float* sums) {
  alignas(64) float block[kOutTile * kPanelRows];
  std::fill_n(sums, kOutTile * cols, 0.0f);
  for (int64_t k = 0; k < num_in; k += kFp8BlockSize) {
    multiply(w, num_in, panel, cols, k, k + kFp8BlockSize, block);
    const float scale = scales[k / kFp8BlockSize];
    for (int64_t i = 0; i < kOutTile * cols; ++i)
      sums[i] = __builtin_fmaf(scale, block[i], sums[i]);
  }
}

void tile_sums(const WeightView& w, const OutTile& tile, const bf16* widened, const Panels& x,
               int64_t p, float (*sums)[kOutTile]) {
  alignas(64) float by_out[kOutTile * kPanelRows] = {};
  if (w.format == WeightFormat::kBf16) {
    multiply(static_cast<const bf16*>(w.data) + tile.first_out * w.num_in, w.num_in, x.panel(p),
             x.cols, 0, w.num_in, by_out);
  } else {
    multiply_scaled(widened, w.scales + tile.first_out / kFp8BlockSize * w.scale_cols(), w.num_in,
                    x.panel(p), x.cols, by_out);
  }
  for (int64_t r = 0; r < x.cols; ++r) {
    for (int64_t n = 0; n < kOutTile; ++n) sums[r][n] = by_out[n * x.cols + r];
  }
}

void widen_tile(const WeightView& w, const OutTile& tile, bf16* out) {
  if (w.format == WeightFormat::kBf16) return;
  widen_e4m3(static_cast<const uint8_t*>(w.data) + tile.first_out * w.num_in,
             tile.num_out * w.num_in, out);
}

void run_tile(const LinearJob& job, const OutTile& tile, const Panels& x, bf16* buffer) {
  const bool pair = job.finish == Finish::kSiluMul;
  bf16* buffer_up = buffer + kOutTile * x.num_in;
  configure(tile.num_out, x.cols);
  widen_tile(tile.projection->weight, tile, buffer);
  if (pair) widen_tile(job.projections[1].weight, tile, buffer_up);
  float sums[kPanelRows][kOutTile], up[kPanelRows][kOutTile];
  for (int64_t r = 0; r < job.x.num_rows; r += kPanelRows) {
    tile_sums(tile.projection->weight, tile, buffer, x, r / kPanelRows, sums);
    if (pair) tile_sums(job.projections[1].weight, tile, buffer_up, x, r / kPanelRows, up);
    finish_tile(job, tile, r, std::min(kPanelRows, job.x.num_rows - r), sums, up);
  }
}

void run(const LinearJob& job, OpContext& ctx) {
  check_job(job);
  Arena::Scope scope(*ctx.scratch);
  const Panels x = pack(job.x, ctx);
  const int64_t per_worker = has_fp8(job) ? 2 * kOutTile * x.num_in : 0;
  bf16* buffers = ctx.scratch->take<bf16>(per_worker * ctx.pool->num_threads());
  for_each_tile_range(job, ctx, [&](int64_t first, int64_t end, int worker) {
    for (int64_t t = first; t < end; ++t)
      run_tile(job, tile_at(job, t), x, buffers + worker * per_worker);
    _tile_release();
  });
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
