// linear_vec.cc - implements ops/linear.h for AVX2, AVX-512 and AVX512_BF16 (compiled once for each). Test: tests/ops
// linear. Bench: bench/kernels linear.
// Idea: lanes run along K; a register tile of a few output rows by a few x rows; FP8 weights are widened to bf16
// (exact) once a tile of output rows and then read by every x row.
// Accumulation: fp32, one vector a (row, output), k ascending in steps of a vector; FP8 blocks sum into a fresh vector
// that their scale multiplies; one fixed tree over the lanes at the end. None of it depends on the register tile, and
// so not on num_rows. vdpbf16ps flushes subnormal inputs and sums to zero.
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/linear_job.h"
#include "ops/cpu/linear_vec_lanes.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

constexpr int64_t kOutGroup = 4;

/// Output rows of a tile as bf16, in place for BF16 weights, widened for FP8.
struct WideTile {
  const bf16* data = nullptr;
  int64_t num_in = 0;
  const float* scales = nullptr;  // of this tile, one a 128-block; null for BF16
  int64_t num_out = 0;
};

WideTile widen_tile(const OutTile& tile, bf16* buffer) {
  const WeightView& w = tile.weight();
  if (!tile.is_fp8())
    return {reinterpret_cast<const bf16*>(tile.data()), w.num_in, nullptr, tile.num_out};
  widen_e4m3(reinterpret_cast<const uint8_t*>(tile.data()), tile.num_out * w.num_in, buffer);
  return {buffer, w.num_in, tile.scales(), tile.num_out};
}

/// Adds x . w over k in [begin, end) to sums, for NR x rows and NO outputs.
template <int NR, int NO>
inline void add_products(const bf16* const (&x)[NR], const bf16* w, int64_t num_in, int64_t begin,
                         int64_t end, Lanes (&sums)[NR][NO]) {
  for (int64_t k = begin; k < end; k += kLaneStep) {
    Operand wide[NO];
    for (int o = 0; o < NO; ++o) wide[o] = load_operand(w + o * num_in + k);
    for (int r = 0; r < NR; ++r) {
      const Operand xs = load_operand(x[r] + k);
      for (int o = 0; o < NO; ++o) sums[r][o] = multiply_add(xs, wide[o], sums[r][o]);
    }
  }
}

template <int NR, int NO>
inline void zero(Lanes (&sums)[NR][NO]) {
  for (int r = 0; r < NR; ++r) {
    for (int o = 0; o < NO; ++o) sums[r][o] = zero_lanes();
  }
}

/// sums[r][first + o] = x_r . W_(first + o).
template <int NR, int NO>
void dot_group(const bf16* const (&x)[NR], const WideTile& tile, int64_t first, TileSums* sums) {
  const bf16* w = tile.data + first * tile.num_in;
  Lanes total[NR][NO];
  zero(total);
  if (tile.scales == nullptr) {
    add_products<NR, NO>(x, w, tile.num_in, 0, tile.num_in, total);
  } else {
    for (int64_t k = 0; k < tile.num_in; k += kFp8BlockSize) {
      Lanes block[NR][NO];
      zero(block);
      add_products<NR, NO>(x, w, tile.num_in, k, k + kFp8BlockSize, block);
      const float scale = tile.scales[k / kFp8BlockSize];
      for (int r = 0; r < NR; ++r) {
        for (int o = 0; o < NO; ++o) total[r][o] = add_scaled(block[r][o], scale, total[r][o]);
      }
    }
  }
  for (int r = 0; r < NR; ++r) {
    for (int o = 0; o < NO; ++o) sums[r][first + o] = sum_lanes(total[r][o]);
  }
}

template <int NR>
void dot_rows(MatView<const bf16> x, int64_t first_row, const WideTile& tile, TileSums* sums) {
  const bf16* rows[NR];
  for (int r = 0; r < NR; ++r) rows[r] = x.row(first_row + r);
  int64_t o = 0;
  for (; o + kOutGroup <= tile.num_out; o += kOutGroup)
    dot_group<NR, kOutGroup>(rows, tile, o, sums);
  for (; o < tile.num_out; ++o) dot_group<NR, 1>(rows, tile, o, sums);
}

/// Sums of up to kRowGroup x rows for one tile.
int64_t dot_some_rows(MatView<const bf16> x, int64_t first_row, const WideTile& tile,
                      TileSums* sums) {
  if (x.num_rows - first_row >= kRowGroup) {
    dot_rows<kRowGroup>(x, first_row, tile, sums);
    return kRowGroup;
  }
  dot_rows<1>(x, first_row, tile, sums);
  return 1;
}

void run_unit(const LinearJob& job, const Unit& unit, bf16* buffer) {
  WideTile wide[kUnitTiles];
  for (int t = 0; t < kUnitTiles; ++t) {
    if (unit.tiles[t].num_out > 0)
      wide[t] = widen_tile(unit.tiles[t], buffer + t * kOutTile * job.x.num_cols);
  }
  TileSums sums[kUnitTiles][kRowGroup] = {};
  for (int64_t r = 0; r < job.x.num_rows;) {
    int64_t done = 0;
    for (int t = 0; t < kUnitTiles; ++t) done = dot_some_rows(job.x, r, wide[t], sums[t]);
    finish_unit(job, unit, r, done, {sums[0], sums[1]});
    r += done;
  }
}

void run(const LinearJob& job, OpContext& ctx) {
  check_job(job);
  Arena::Scope scope(*ctx.scratch);
  const int64_t per_worker = kUnitTiles * kOutTile * job.x.num_cols;
  bf16* buffers = ctx.scratch->take<bf16>(per_worker * ctx.pool->num_threads());
  for_each_unit(job, ctx, [&](const Unit& unit, int worker) {
    run_unit(job, unit, buffers + worker * per_worker);
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
