#pragma once
// The instructions that decode attention is written in, and conversions that go two at a time.

#include <cstdint>

#include "base/bf16.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::attn {

/// 16 bytes, zero unless `wanted`.
__device__ __forceinline__ void copy_async(uint32_t to, const bf16* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(wanted ? 16 : 0)
               : "memory");
}
/// A hint; `at` and `bytes` are multiples of 16.
__device__ __forceinline__ void prefetch_bulk(const void* at, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"(bytes) : "memory");
#endif
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ uint4 load_matrices(uint32_t at) {
  uint4 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
__device__ __forceinline__ uint4 load_matrices_transposed(uint32_t at) {
  uint4 x;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "r"(at)
               : "memory");
  return x;
}
__device__ __forceinline__ void prefetch(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

/// e^x to about 2^-22, zero below 2^-126.
__device__ __forceinline__ float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  return quick_exp2(x * kLog2E);
}

/// Maximum over the warp of values that are no NaN.
__device__ __forceinline__ float warp_max(float x) {
  const int bits = __float_as_int(x);
  const int ordered = bits ^ (bits >> 31 & 0x7fffffff);
  const int max = __reduce_max_sync(0xffffffffu, ordered);
  return __int_as_float(max ^ (max >> 31 & 0x7fffffff));
}

__device__ __forceinline__ void mma(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

}  // namespace sluice::cuda::attn
