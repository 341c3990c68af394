#pragma once
// Instructions of prefill attention: wgmma on bf16, copies to a cluster, pairs of bf16.

#include <cuda.h>

#include <cstdint>

#include "ops/cuda/tma.cuh"
#include "ops/cuda/wgmma.cuh"

namespace sluice::cuda::prefill {

/// As load_tile_3d, to the same place and barrier in every block of `mask`.
__device__ __forceinline__ void load_tile_3d_multicast(uint32_t to, const CUtensorMap* map, int x,
                                                       int y, int z, uint32_t barrier,
                                                       uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(mask)
      : "memory");
}

/// Descriptor's low word where n runs along memory: rows of 64 n (128 bytes, 128-byte swizzle), one a k; the next 64 n lie kPanel bytes on.
template <int kPanel>
__device__ __forceinline__ uint32_t swizzled_columns(uint32_t address) {
  return __shfl_sync(0xffffffffu, uint32_t{kPanel >> 4} << 16 | (address & 0x3ffff) >> 4, 0);
}

#define SLUICE_SUMS128                                                                      \
  SLUICE_P0 ", " SLUICE_P8 ", " SLUICE_P16 ", " SLUICE_P24 ", " SLUICE_P32 ", " SLUICE_P40  \
            ", " SLUICE_P48 ", " SLUICE_P56 ", " SLUICE_P64 ", " SLUICE_P72 ", " SLUICE_P80 \
            ", " SLUICE_P88 ", " SLUICE_P96 ", " SLUICE_P104 ", " SLUICE_P112 ", " SLUICE_P120
#define SLUICE_D128(c, d, i) SLUICE_D64(c, d, i), SLUICE_D64(c, d, i + 64)

/// d = A B, 64 rows by 64 columns by 16 k, both from shared memory with k along memory.
__device__ __forceinline__ void wgmma_scores_begin(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SLUICE_SUMS64
               "}, %32, %33, 0, 1, 1, 0, 0;"
               : SLUICE_D32("=f", d, 0)
               : "l"(a), "l"(b));
}
__device__ __forceinline__ void wgmma_scores_add(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SLUICE_SUMS64
               "}, %32, %33, 1, 1, 1, 0, 0;"
               : SLUICE_D32("+f", d, 0)
               : "l"(a), "l"(b));
}
/// The same with A from registers.
__device__ __forceinline__ void wgmma_scores_begin(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SLUICE_SUMS64
               "}, {%32, %33, %34, %35}, %36, 0, 1, 1, 0;"
               : SLUICE_D32("=f", d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_scores_add(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SLUICE_SUMS64
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
               : SLUICE_D32("+f", d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
/// d = A B + (adds ? d : 0), 64 rows by 256 columns by 16 k: A from registers, B from shared memory with columns along memory.
__device__ __forceinline__ void wgmma_outputs(float (&d)[128], const uint32_t* a, uint64_t b,
                                              uint32_t adds) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SLUICE_SUMS128
      "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n"
      "}"
      : SLUICE_D128("+f", d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds));
}

/// Both rounded to bf16, nearest even; `low` in the lower half.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
__device__ __forceinline__ float low_bf16(uint32_t x) {
  return __uint_as_float(x << 16);
}
__device__ __forceinline__ float high_bf16(uint32_t x) {
  return __uint_as_float(x & 0xffff0000u);
}
__device__ __forceinline__ uint32_t max_bf16(uint32_t a, uint32_t b) {
  uint32_t x;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
  return x;
}

}  // namespace sluice::cuda::prefill
