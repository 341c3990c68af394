#pragma once
// mma.sync m16n8k16 with tokens from a swizzled stage: what a wgmma does, warp by warp. The sums lie as in wgmma.cuh and are the same, bit for bit.

#include <cstdint>

namespace sluice::cuda {

/// sums[0 .. 3] += A B: 16 rows by 8 tokens.
__device__ __forceinline__ void mma_16816(float* sums, const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of 16 bits from shared memory; lane 8 m + i gives row i of matrix m.
__device__ __forceinline__ void load_matrices(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

}  // namespace sluice::cuda
