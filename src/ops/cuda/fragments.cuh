#pragma once
// Operands of the matrix instructions: FP8 and bf16 values as f16, and the instruction itself.

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

/// Four e4m3 bytes as two f16 pairs, exactly.
__device__ __forceinline__ void widen_fp8(uint32_t word, uint32_t* low, uint32_t* high) {
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(*low), "=r"(*high)
      : "r"(word));
#else
  // e4m3 has bias 7, f16 bias 15: exponent and mantissa shifted into place are 2^8 too small, subnormals included.
  const auto place = [](uint32_t pair) {  // bytes 0 and 1 to the high bytes of two halves
    const uint32_t spread = __byte_perm(pair, 0, 0x1404);
    const uint32_t half = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> 1);
    uint32_t scaled;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(scaled) : "r"(half), "r"(0x5c005c00u));  // 256
    return scaled;
  };
  *low = place(word & 0xffffu);
  *high = place(word >> 16);
#endif
}

/// Two bf16 values as operands (packed.h): low half first.
__device__ __forceinline__ uint32_t operands_of(uint32_t bf16_pair) {
  constexpr float kFactor = 1.0f / (1 << kActivationShift);
  const float low = low_bf16(bf16_pair) * kFactor;
  const float high = high_bf16(bf16_pair) * kFactor;
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Has an operand of the pair left f16's range (infinity or NaN)?
__device__ __forceinline__ bool is_out_of_range(uint32_t pair) {
  return (pair & 0x7c00u) == 0x7c00u || (pair & 0x7c000000u) == 0x7c000000u;
}

/// Tells the host that a value was too large for an operand.
__device__ __forceinline__ void raise_flag(int* flag) {
  *reinterpret_cast<volatile int*>(flag) = 1;
}

/// t += A B of one m16n8k16 step, fp32 sums.
__device__ __forceinline__ void mma_step(float (&t)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(t[0]), "+f"(t[1]), "+f"(t[2]), "+f"(t[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/// The order in which every kernel joins the parts of K (packed.h).
__device__ __forceinline__ float join_parts(const float (&p)[kNumParts]) {
  return __fadd_rn(
      __fadd_rn(__fadd_rn(__fadd_rn(p[0], p[1]), p[2]), __fadd_rn(__fadd_rn(p[3], p[4]), p[5])),
      __fadd_rn(p[6], p[7]));
}

}  // namespace sluice::cuda
