#pragma once
// Gates of a chunk and value head, and the factors by row that the scan takes.

#include "ops/cuda/gdn_prefill_layout.cuh"

namespace sluice::cuda::gdn_prefill {

/// Of a value head, by row.
struct Gates {
  float2 G
      [kRows];  // inclusive sum of g / log(2), high and low part: |G| may be 1,000 where a difference is 1e-3
  float beta[kRows];
};

__device__ __forceinline__ float2 in_parts(double x) {
  const auto upper = static_cast<float>(x);
  return make_float2(upper, static_cast<float>(x - upper));
}

/// What a lane's gates are made of: rows 2 lane and 2 lane + 1.
struct GateInputs {
  float A_log, dt_bias;
  bf16 a[2], b[2];
};
__device__ __forceinline__ GateInputs load_gates(const GdnPrefill& args, const Chunk& chunk,
                                                 int head) {
  GateInputs in = {args.A_log[head], args.dt_bias[head], {}, {}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row =
        chunk.step_row + min(static_cast<int>(threadIdx.x) % kWarp * 2 + i, chunk.count - 1);
    in.a[i] = args.a.data[row * args.a.stride + head];
    in.b[i] = args.b.data[row * args.b.stride + head];
  }
  return in;
}

/// One warp. Rows behind the run's end have g = beta = 0.
__device__ __forceinline__ void make_gates(const GateInputs& in, int count, Gates& gates) {
  constexpr double kLog2E = 1.4426950408889634;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float exp_A = expf(in.A_log);
  double g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool is_row = 2 * lane + i < count;
    g[i] = is_row ? gdn::log_decay(widen(in.a[i]), in.dt_bias, exp_A) * kLog2E : 0.0;
    gates.beta[2 * lane + i] = is_row ? gdn::beta_of(widen(in.b[i])) : 0.0f;
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const double before = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += before;
  }
  const double before = __shfl_up_sync(kAllLanes, sum, 1);
  const double base = lane == 0 ? 0.0 : before;
  gates.G[2 * lane] = in_parts(base + g[0]);
  gates.G[2 * lane + 1] = in_parts(sum);
}

/// exp of the sum of g over (j, i], from the two rows' G.
__device__ __forceinline__ float decay_between(float2 G_j, float2 G_i) {
  return quick_exp2((G_i.x - G_j.x) + (G_i.y - G_j.y));
}

__device__ __forceinline__ void store_factors(const float (&inverse)[2][kRows], const Gates& gates,
                                              int row, Factors* to) {
  const float from_start = quick_exp2(gates.G[row].x);
  const int place = place_of(row);
  to->key[place] = from_start * inverse[0][row];
  to->query[place] = from_start * (inverse[1][row] * kTriangleScale);
  to->tail[place] = decay_between(gates.G[row], gates.G[kRows - 1]) * inverse[0][row];
  if (row == kRows - 1) to->decay = from_start;
}

}  // namespace sluice::cuda::gdn_prefill
