#pragma once
// A consumer warpgroup's totals of a tile.
//
// One warpgroup's sums of 128 k enter its totals while the other's are being multiplied. What a warpgroup does between its own multiplications decides whether the tensor cores idle: all waiting and
// loading for the next stage therefore lies under them.

#include "ops/cuda/gemm_fp8.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/wgmma_fp8.cuh"

namespace sluice::cuda {

__device__ __forceinline__ float load_shared(uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

/// A consumer warpgroup's totals of its tile: [piece][as in wgmma_fp8.cuh].
template <typename Shape>
struct Fp8Totals {
  float v[Shape::kPieces][Shape::kSums];
};

/// Scales of a stage: of a lane's two tokens and of the two rows of weight blocks.
struct Fp8Scales {
  float low, high;
  float first, second;
  template <typename Shape>
  __device__ __forceinline__ void load(Fp8Ring<Shape> ring, int slot, int row) {
    low = load_shared(ring.scales(slot) + 4 * row);
    high = load_shared(ring.scales(slot) + 4 * (row + 8));
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(first), "=f"(second)
                 : "r"(ring.weight_scales(slot))
                 : "memory");
  }
  /// Of the weights of 64 columns of a piece.
  template <typename Shape>
  __device__ __forceinline__ float weight(int piece, int part, bool middle_is_second) const {
    if (Shape::kPieces > 1) return piece == 0 ? first : second;
    if (part == 0) return first;
    if (part == 1) return middle_is_second ? second : first;
    return second;
  }
};

/// Totals of a tile over K's 128s [begin, end).
template <typename Shape>
__device__ __forceinline__ void sum_fp8_tile(Fp8Ring<Shape> ring, RingCursor<Shape::kStages>& at,
                                             Fp8Place place, int begin, int end,
                                             Fp8Totals<Shape>& totals) {
  constexpr int kParts = Shape::kRows / kFp8ScaleColumns;
  using Instruction = Fp8Wgmma<Shape::kRows>;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // uniform
  const int row = static_cast<int>(threadIdx.x) / kWarp * 16 + lane / 4;
  const bool middle_is_second = place.tile * Shape::kTileRows % kScaleBlock != 0;
#pragma unroll
  for (int p = 0; p < Shape::kPieces; ++p) {
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) totals.v[p][i] = 0.0f;
  }
  float sums[Shape::kSums];
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  int never = 0;
  asm volatile("" : "+r"(never));
  Fp8Scales scales;
  barrier_wait(ring.full(at.slot), at.parity);
  scales.load(ring, at.slot, row);
#pragma unroll 1
  for (int b = begin; b < end; ++b) {
    const uint32_t tokens = fp8_descriptor(ring.tokens(at.slot) + group * (Shape::kTokenBytes / 2));
    const uint32_t empty = ring.empty(at.slot);
    Fp8Scales next_scales = scales;
#pragma unroll
    for (int p = 0; p < Shape::kPieces; ++p) {
      const uint32_t weights = fp8_descriptor(ring.weights(at.slot, p));
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        Instruction::run(sums, tokens + fp8_tokens_step(s), weights + fp8_weights_step(s),
                         s == 0 ? never : 1);
      }
      wgmma_commit();
      // While they multiply: this piece's scales and, behind the last piece, the next stage.
      float low[kParts];
      float high[kParts];
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const float weight = scales.template weight<Shape>(p, i, middle_is_second);
        low[i] = __fmul_rn(scales.low, weight);
        high[i] = __fmul_rn(scales.high, weight);
      }
      if (p + 1 == Shape::kPieces) {
        at.advance();
        if (b + 1 < end) {
          barrier_wait(ring.full(at.slot), at.parity);
          next_scales.load(ring, at.slot, row);
        }
      }
      wgmma_wait<0>();
      pin(sums);
      if (p + 1 == Shape::kPieces) {
        if constexpr (Shape::kCluster > 1) {
          if (lane < Shape::kCluster) barrier_arrive_at(empty, lane);
        } else {
          if (lane == 0) barrier_arrive(empty);
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) {
        totals.v[p][i] = fmaf(sums[i], i % 4 < 2 ? low[i / 32] : high[i / 32], totals.v[p][i]);
      }
    }
    scales = next_scales;
  }
}

}  // namespace sluice::cuda
