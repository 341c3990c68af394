// linear_scalar.cc - implements ops/linear.h for machines without a vector set we know. Test: tests/ops linear.
// Accumulation: fp32, k ascending, FP8 per 128-block.
#include <array>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/linear_job.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

float dot_bf16(const bf16* x, const bf16* w, int64_t num_in) {
  float sum = 0.0f;
  for (int64_t k = 0; k < num_in; ++k) sum += to_float(x[k]) * to_float(w[k]);
  return sum;
}

std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = e4m3_to_float(static_cast<uint8_t>(i));
  return table;
}

float dot_fp8(const bf16* x, const uint8_t* w, const float* scales, int64_t num_in) {
  static const std::array<float, 256> kTable = make_e4m3_table();
  float sum = 0.0f;
  for (int64_t block = 0; block * kFp8BlockSize < num_in; ++block) {
    float partial = 0.0f;
    for (int64_t k = block * kFp8BlockSize; k < (block + 1) * kFp8BlockSize; ++k) {
      partial += to_float(x[k]) * kTable[w[k]];
    }
    sum += partial * scales[block];
  }
  return sum;
}

float dot(const bf16* x, const WeightView& w, int64_t n) {
  if (w.format == WeightFormat::kBf16) {
    return dot_bf16(x, static_cast<const bf16*>(w.data) + n * w.num_in, w.num_in);
  }
  return dot_fp8(x, static_cast<const uint8_t*>(w.data) + n * w.num_in,
                 w.scales + n / kFp8BlockSize * w.scale_cols(), w.num_in);
}

void run(const LinearJob& job, OpContext& ctx) {
  check_job(job);
  for_each_unit(job, ctx, [&](const Unit& unit, int) {
    for (int64_t r = 0; r < job.x.num_rows; ++r) {
      TileSums sums[kUnitTiles] = {};
      for (int t = 0; t < kUnitTiles; ++t) {
        const OutTile& tile = unit.tiles[t];
        for (int64_t n = 0; n < tile.num_out; ++n) {
          sums[t][n] = dot(job.x.row(r), tile.weight(), tile.first_out + n);
        }
      }
      finish_unit(job, unit, r, 1, {&sums[0], &sums[1]});
    }
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
