#pragma once
// A block's RMSNorm of one row, shared out as the skinny kernels share K: warp p has part p, and a lane 4 values of each 128.

#include "ops/cuda/fragments.cuh"

namespace sluice::cuda {

/// This lane's values of its warp's part, as bf16 pairs. kPairsMax bounds the 128-blocks of a part.
template <int kPairsMax>
struct RowShare {
  uint2 values[kPairsMax];

  /// `part`: the row at the warp's part.
  __device__ __forceinline__ void load(const bf16* part, int num_pairs) {
    const bf16* from = part + 4 * (threadIdx.x % kWarp);
#pragma unroll
    for (int j = 0; j < kPairsMax; ++j) {
      values[j] = make_uint2(0u, 0u);
      if (j < num_pairs) values[j] = __ldcg(reinterpret_cast<const uint2*>(from + j * kScaleBlock));
    }
  }
  __device__ __forceinline__ float element(int j, int i) const {
    const uint32_t word = i < 2 ? values[j].x : values[j].y;
    return i % 2 == 0 ? low_bf16(word) : high_bf16(word);
  }
  /// Over the warp's part; in every lane.
  __device__ __forceinline__ float sum_of_squares() const {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kPairsMax; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum = fmaf(element(j, i), element(j, i), sum);
    }
    return warp_sum(sum);
  }
  /// values = rb(x * inverse * (1 + w)); `weights` as NormWeights has them.
  __device__ __forceinline__ void norm(float inverse, const float4 (&weights)[kPairsMax]) {
#pragma unroll
    for (int j = 0; j < kPairsMax; ++j) norm_one(j, inverse, weights[j]);
  }
  __device__ __forceinline__ void norm_first(float inverse, const float4& w) {
    norm_one(0, inverse, w);
  }

 private:
  __device__ __forceinline__ void norm_one(int j, float inverse, const float4& w) {
    values[j] = make_uint2(
        narrow_pair(element(j, 0) * inverse * (1.0f + w.x), element(j, 1) * inverse * (1.0f + w.y)),
        narrow_pair(element(j, 2) * inverse * (1.0f + w.z),
                    element(j, 3) * inverse * (1.0f + w.w)));
  }
};

/// Stays where it is written, ahead of pdl_wait(); the compiler moves __ldg behind it.
__device__ __forceinline__ float4 load_early(const float* from) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// The stored w of a lane's elements; nothing of the step, so it may be loaded early.
template <int kPairsMax>
struct NormWeights {
  float4 w[kPairsMax];
  __device__ __forceinline__ void load(const float* part, int num_pairs) {
    const float* from = part + 4 * (threadIdx.x % kWarp);
#pragma unroll
    for (int j = 0; j < kPairsMax; ++j) {
      w[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (j < num_pairs) w[j] = load_early(from + j * kScaleBlock);
    }
  }
};

/// 1 / rms of a row from its parts' sums of squares, in order.
__device__ __forceinline__ float inverse_rms(const float* squares, int num_cols, float eps) {
  float sum = 0.0f;
#pragma unroll
  for (int p = 0; p < kNumParts; ++p) sum += squares[p];
  return 1.0f / sqrtf(sum / static_cast<float>(num_cols) + eps);
}

}  // namespace sluice::cuda
