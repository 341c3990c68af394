#pragma once
// A row's 128 columns to e4m3 (fp8_operands.h).

#include "ops/cuda/math.cuh"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

struct Fp8Scale {
  float inverse;
  float stored;  // scale * 2^-kActivationShift

  /// max: largest |x|. What is not finite leaves NaN as the inverse's products or the scale.
  __device__ __forceinline__ explicit Fp8Scale(float max) {
    constexpr float kLargest = 448.0f;
    constexpr float kLeast = 0x1p-64f;
    const float bound = max < kLeast ? kLeast : max;  // NaN stays
    inverse = __fdiv_rn(kLargest, bound);
    stored = __fdiv_rn(bound, kLargest) * (1.0f / (1 << kActivationShift));
  }
};

/// Two bf16, to two e4m3, the lower index in the lower byte.
__device__ __forceinline__ uint16_t quantise_pair(uint32_t pair, float inverse) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(codes)
      : "f"(high_bf16(pair) * inverse), "f"(low_bf16(pair) * inverse));
  return codes;
}

/// Four.
__device__ __forceinline__ uint32_t quantise_quad(uint32_t first, uint32_t second, float inverse) {
  return quantise_pair(first, inverse) | static_cast<uint32_t>(quantise_pair(second, inverse))
                                             << 16;
}

}  // namespace sluice::cuda
