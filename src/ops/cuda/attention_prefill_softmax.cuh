#pragma once
// A tile of scores becomes weights, in the registers that the first product leaves and the second one takes.

#include "ops/cuda/attention_prefill_params.cuh"

namespace sluice::cuda::prefill {

/// What a thread knows of its rows r and r + 8 of the warp's 16.
struct RowPair {
  State state[2];  // l: this thread's keys only
  int last[2];     // position of the row: the last key it sees
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Keys behind a row's own position are left out. `first`: the tile's first key.
__device__ __forceinline__ void mask(float (&s)[32], int first, const RowPair& rows) {
  const int column = first + 2 * static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + 8 * i + e % 2 > rows.last[e / 2]) s[4 * i + e] = -INFINITY;
    }
  }
}

/// s = q . k of 64 keys -> p = rb(exp(rb(s) / 16 - m / 16)), relative to the running maximum m, as the A operand of four k16 steps; scale: what earlier sums
/// are multiplied by. A tile of which a row sees nothing leaves it as it was, bit for bit (scale 1, weights 0).
__device__ __forceinline__ void softmax(const float (&s)[32], RowPair* rows, uint32_t (&p)[16],
                                        float (&scale)[2]) {
  uint32_t d[16];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    d[2 * i] = pack_bf16(s[4 * i], s[4 * i + 1]);
    d[2 * i + 1] = pack_bf16(s[4 * i + 2], s[4 * i + 3]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    State* state = &rows->state[h];
    uint32_t top = max_bf16(max_bf16(d[h], d[2 + h]), max_bf16(d[4 + h], d[6 + h]));
    top = max_bf16(top, max_bf16(max_bf16(d[8 + h], d[10 + h]), max_bf16(d[12 + h], d[14 + h])));
    const float max = fmaxf(state->m, quad_max(fmaxf(low_bf16(top), high_bf16(top))));
    const float base = max == -INFINITY ? 0.0f : max;
    scale[h] = quick_exp2((state->m - base) * kScale);
    state->m = max;
    const float offset = -base * kScale;
    float sum[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t x = d[2 * i + h];
      const float low = quick_exp2(fmaf(low_bf16(x), kScale, offset));
      const float high = quick_exp2(fmaf(high_bf16(x), kScale, offset));
      const uint32_t pair = pack_bf16(low, high);
      p[2 * i + h] = pair;
      sum[0] += low_bf16(pair);
      sum[1] += high_bf16(pair);
    }
    state->l = fmaf(state->l, scale[h], sum[0] + sum[1]);
  }
}

/// Nothing to do while no row of the warp meets a larger score, which is most of the time: a factor of 1 changes no bit.
__device__ __forceinline__ void rescale(float (&o)[128], const float (&scale)[2]) {
  if (!__any_sync(0xffffffffu, scale[0] != 1.0f || scale[1] != 1.0f)) return;
#pragma unroll
  for (int j = 0; j < 32; ++j) {
    o[4 * j] *= scale[0];
    o[4 * j + 1] *= scale[0];
    o[4 * j + 2] *= scale[1];
    o[4 * j + 3] *= scale[1];
  }
}

}  // namespace sluice::cuda::prefill
