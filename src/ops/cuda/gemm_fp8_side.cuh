#pragma once
// Side tiles of gemm_fp8.h: 128 tokens by up to 64 rows of f16 weights, whose tokens are f16 as they are. They take the stages of the ring like any tile: of 64 or 128 k, tokens first, then weights.
// Both lie in shared memory with k in its own order, so one pair of descriptors serves f16 as it serves e4m3 (wgmma_fp8.cuh): a step is 32 bytes of a row.

#include "ops/cuda/gemm_fp8.cuh"
#include "ops/cuda/wgmma_fp8.cuh"

namespace sluice::cuda {

inline constexpr int kFp8SideSums = kFp8SideRows / 2;  // of a lane

/// What a stage of a side tile holds of K, in 64s, and where.
template <typename Shape>
struct Fp8SideStage {
  static constexpr int kTokenBytes = kFp8TileTokens * kPackBlock * 2;
  static constexpr int kWeightBytes = kFp8SideRows * kPackBlock * 2;
  static constexpr int kBlocks = Shape::kStageBytes >= 2 * (kTokenBytes + kWeightBytes) ? 2 : 1;
  static_assert(kBlocks * (kTokenBytes + kWeightBytes) <= Shape::kStageBytes);
  __device__ static uint32_t tokens(Fp8Ring<Shape> ring, int slot, int block) {
    return ring.tokens(slot) + block * kTokenBytes;
  }
  __device__ static uint32_t weights(Fp8Ring<Shape> ring, int slot, int block) {
    return ring.tokens(slot) + kBlocks * kTokenBytes + block * kWeightBytes;
  }
  __device__ static int num_stages(const Fp8Params& params) {
    return params.num_blocks * (kScaleBlock / kPackBlock) / kBlocks;
  }
};

template <typename Shape>
__device__ void feed_fp8_side_weights(const Fp8Params& params, Fp8Ring<Shape> ring,
                                      RingCursor<Shape::kStages>& at, Fp8Place place) {
  using Stage = Fp8SideStage<Shape>;
  for (int b = 0; b < Stage::num_stages(params); ++b) {
    barrier_wait(ring.empty(at.slot), at.parity ^ 1);
    const uint32_t full = ring.full(at.slot);
    barrier_expect(full, Stage::kBlocks * Stage::kWeightBytes);
#pragma unroll
    for (int i = 0; i < Stage::kBlocks; ++i) {
      load_tile_4d(Stage::weights(ring, at.slot, i), &params.weights[place.segment], 0, 0,
                   2 * (b * Stage::kBlocks + i), 0, full, kEvictNormal);
    }
    at.advance();
  }
}

template <typename Shape>
__device__ void feed_fp8_side_tokens(const Fp8Params& params, Fp8Ring<Shape> ring,
                                     RingCursor<Shape::kStages>& at, Fp8Place place) {
  using Stage = Fp8SideStage<Shape>;
  for (int b = 0; b < Stage::num_stages(params); ++b) {
    barrier_wait(ring.empty(at.slot), at.parity ^ 1);
    const uint32_t full = ring.full(at.slot);
    barrier_expect(full, Stage::kBlocks * params.tile_tokens * kPackBlock * 2);
#pragma unroll
    for (int i = 0; i < Stage::kBlocks; ++i) {
      load_tile_2d(Stage::tokens(ring, at.slot, i), &params.exact_x,
                   (b * Stage::kBlocks + i) * kPackBlock, place.token_first, full, kEvictNormal);
    }
    at.advance();
  }
}

/// The third feeder has nothing to bring.
template <typename Shape>
__device__ void feed_fp8_side_nothing(const Fp8Params& params, Fp8Ring<Shape> ring,
                                      RingCursor<Shape::kStages>& at) {
  for (int b = 0; b < Fp8SideStage<Shape>::num_stages(params); ++b) {
    barrier_wait(ring.empty(at.slot), at.parity ^ 1);
    barrier_arrive(ring.full(at.slot));
    at.advance();
  }
}

/// Sums of a warpgroup's 64 tokens; layout: wgmma_fp8.cuh.
template <typename Shape>
__device__ __forceinline__ void sum_fp8_side(const Fp8Params& params, Fp8Ring<Shape> ring,
                                             RingCursor<Shape::kStages>& at,
                                             float (&sums)[kFp8SideSums]) {
  using Stage = Fp8SideStage<Shape>;
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);  // uniform
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
#pragma unroll 1
  for (int b = 0; b < Stage::num_stages(params); ++b) {
    barrier_wait(ring.full(at.slot), at.parity);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < Stage::kBlocks; ++i) {
      const uint32_t tokens =
          fp8_descriptor(Stage::tokens(ring, at.slot, i) + group * (Stage::kTokenBytes / 2));
      const uint32_t weights = fp8_descriptor(Stage::weights(ring, at.slot, i));
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        add_f16_product(sums, tokens + fp8_tokens_step(s), weights + fp8_weights_step(s));
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(sums);
    const uint32_t empty = ring.empty(at.slot);
    if constexpr (Shape::kCluster > 1) {
      if (lane < Shape::kCluster) barrier_arrive_at(empty, lane);
    } else {
      if (lane == 0) barrier_arrive(empty);
    }
    at.advance();
  }
}

__device__ __forceinline__ void store_fp8_side(const Fp8Params& params, Fp8Place place,
                                               const float (&sums)[kFp8SideSums]) {
  const Fp8Segment& segment = params.segments[place.segment];
  const auto lane = static_cast<int>(threadIdx.x) % kWarp;
  const int token = place.token_first + static_cast<int>(threadIdx.x) / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < kFp8SideRows / 8; ++j) {
    const int n = 8 * j + lane % 4 * 2;
    if (n >= segment.num_out) break;
    const float first = __ldg(segment.scales + n);
    const float second = __ldg(segment.scales + n + 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int m = token + 8 * h;
      if (m >= fp8_row_end(params, place)) continue;
      auto* to = static_cast<bf16*>(segment.out) + m * segment.out_stride + n;
      *reinterpret_cast<uint32_t*>(to) =
          narrow_pair(sums[4 * j + 2 * h] * first, sums[4 * j + 2 * h + 1] * second);
    }
  }
}

}  // namespace sluice::cuda
