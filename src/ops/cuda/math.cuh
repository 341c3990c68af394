#pragma once
// What kernels of several families share: bf16 in and out, and sums in a fixed order.

#include <cstdint>

#include "base/bf16.h"

namespace sluice::cuda {

constexpr int kWarp = 32;

__device__ inline float widen(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

/// Nearest even; the kernels' values are never NaN by design, and a NaN stays one.
__device__ inline bf16 narrow(float x) {
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16{static_cast<uint16_t>((u >> 16) | 0x40u)};
  return bf16{static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

/// The spec's rb().
__device__ inline float round_bf16(float x) {
  return widen(narrow(x));
}

__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float silu(float x) {
  return x * sigmoid(x);
}

/// Sum over the warp in every lane; the tree is fixed.
__device__ inline float warp_sum(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

/// Sum over a block of whole warps (at most 32), in every thread; warps are added in order.
__device__ inline float block_sum(float x, float* per_warp) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) per_warp[warp] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < static_cast<int>(blockDim.x) / kWarp; ++i) sum += per_warp[i];
  __syncthreads();
  return sum;
}
__device__ inline float block_max(float x, float* per_warp) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) per_warp[warp] = x;
  __syncthreads();
  float max = per_warp[0];
  for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) max = fmaxf(max, per_warp[i]);
  __syncthreads();
  return max;
}

}  // namespace sluice::cuda
