#pragma once
// What kernels of several families share: bf16 in and out, and sums in a fixed order.

#include <cstdint>

#include "base/bf16.h"

namespace sluice::cuda {

constexpr int kWarp = 32;

__device__ inline float widen(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

/// Two bf16 in one register, the lower index in the lower half.
__device__ __forceinline__ float low_bf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_bf16(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
/// Both rounded to bf16, nearest even.
__device__ __forceinline__ uint32_t narrow_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
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

/// 2^x by the hardware: to about 2^-22 of it, zero below 2^-126, exactly 1 at 0.
__device__ __forceinline__ float quick_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// silu() by the hardware's 2^x and 1/x, for products that are rounded to bf16 next: within 3e-7 of it.
__device__ __forceinline__ float quick_silu(float x) {
  constexpr float kLog2E = 1.4426950408889634f;
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + quick_exp2(x * -kLog2E)));
  return x * inverse;
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Over the warp, in every lane; the tree is fixed.
template <typename Op>
__device__ inline float warp_reduce(float x, Op op) {
  for (int step = kWarp / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}

/// Over a block of whole warps (at most 32), in every thread; warps are joined in order.
template <typename Op>
__device__ inline float block_reduce(float x, float* per_warp, Op op) {
  x = warp_reduce(x, op);
  if (threadIdx.x % kWarp == 0) per_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  float all = per_warp[0];
  for (int i = 1; i < static_cast<int>(blockDim.x) / kWarp; ++i) all = op(all, per_warp[i]);
  __syncthreads();
  return all;
}

__device__ inline float warp_sum(float x) {
  return warp_reduce(x, Sum());
}
__device__ inline float block_sum(float x, float* per_warp) {
  return block_reduce(x, per_warp, Sum());
}
__device__ inline float block_max(float x, float* per_warp) {
  return block_reduce(x, per_warp, Max());
}

}  // namespace sluice::cuda
