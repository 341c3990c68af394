#pragma once
// The three threads that fill stages: weights, tokens with their scales, and the scales of the weights. Only tokens wait for the kernel before.

#include "ops/cuda/gemm_fp8_side.cuh"

namespace sluice::cuda {

/// One thread. The blocks of a cluster each fetch a share of the weights for all.
template <typename Shape>
__device__ void feed_fp8_weights(const Fp8Params& params, Fp8Ring<Shape> ring) {
  constexpr uint16_t kAll = (1 << Shape::kCluster) - 1;
  RingCursor<Shape::kStages> at;
  const auto rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
  for_fp8_tiles<Shape>(params, [&](Fp8Place place) {
    if constexpr (Shape::kSide) {
      if (place.is_side) {
        feed_fp8_side_weights(params, ring, at, place);
        return;
      }
    }
    const Fp8Blocks blocks = fp8_blocks(params, place);
    for (int b = blocks.begin; b < blocks.end; ++b) {
      barrier_wait(ring.empty(at.slot), at.parity ^ 1);
      const uint32_t full = ring.full(at.slot);
      barrier_expect(full, Shape::kPieces * Shape::kPieceBytes);
#pragma unroll
      for (int i = 0; i < Shape::kCopies; ++i) {
        const int first = (rank * Shape::kCopies + i) * Shape::kCopyGroups;  // of the tile
        const int piece = first / Shape::kPieceGroups;
        const CUtensorMap* map = &params.weights[Shape::kPair ? piece : place.segment];
        const int group = place.tile * (Shape::kTileRows / kRowGroup) +
                          (Shape::kPair ? first % Shape::kPieceGroups : first);
        const uint32_t to = ring.weights(at.slot, 0) + first * (kRowGroup * kScaleBlock);
        if constexpr (Shape::kCluster > 1) {
          load_tile_4d(to, map, 0, 0, 2 * b, group, full, kEvictNormal, kAll);
        } else {
          load_tile_4d(to, map, 0, 0, 2 * b, group, full, kEvictNormal);
        }
      }
      at.advance();
    }
  });
}

/// One thread: tokens and their scales.
template <typename Shape>
__device__ void feed_fp8_tokens(const Fp8Params& params, Fp8Ring<Shape> ring) {
  RingCursor<Shape::kStages> at;
  for_fp8_tiles<Shape>(params, [&](Fp8Place place) {
    if constexpr (Shape::kSide) {
      if (place.is_side) {
        feed_fp8_side_tokens(params, ring, at, place);
        return;
      }
    }
    const Fp8Blocks blocks = fp8_blocks(params, place);
    for (int b = blocks.begin; b < blocks.end; ++b) {
      barrier_wait(ring.empty(at.slot), at.parity ^ 1);
      const uint32_t full = ring.full(at.slot);
      barrier_expect(full, params.tile_tokens * (kScaleBlock + 4));
      load_tile_2d(ring.tokens(at.slot), &params.x, b * kScaleBlock, place.token_first, full,
                   kEvictNormal);
      load_tile_2d(ring.scales(at.slot), &params.x_scales, place.token_first, b, full,
                   kEvictNormal);
      at.advance();
    }
  });
}

/// One thread: the scales of a tile's weights, two rows of them: of gate and up, or of the blocks of 128 rows that a tile meets.
template <typename Shape>
__device__ void feed_fp8_weight_scales(const Fp8Params& params, Fp8Ring<Shape> ring) {
  RingCursor<Shape::kStages> at;
  for_fp8_tiles<Shape>(params, [&](Fp8Place place) {
    if constexpr (Shape::kSide) {
      if (place.is_side) {
        feed_fp8_side_nothing(params, ring, at);
        return;
      }
    }
    const Fp8Segment& segment = params.segments[place.segment];
    const int row = place.tile * Shape::kTileRows / kScaleBlock;
    const int last = (segment.num_out - 1) / kScaleBlock;
    const float* first = segment.scales + static_cast<int64_t>(row) * params.num_blocks;
    const float* second = Shape::kPair ? params.segments[1].scales + (first - segment.scales)
                          : row < last ? first + params.num_blocks
                                       : first;
    const Fp8Blocks blocks = fp8_blocks(params, place);
    float2 ahead = make_float2(__ldg(first + blocks.begin), __ldg(second + blocks.begin));
    for (int b = blocks.begin; b < blocks.end; ++b) {
      const float2 scales = ahead;
      if (b + 1 < blocks.end) {
        ahead = make_float2(__ldg(first + b + 1), __ldg(second + b + 1));
      }
      barrier_wait(ring.empty(at.slot), at.parity ^ 1);
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(ring.weight_scales(at.slot)),
                   "f"(scales.x), "f"(scales.y)
                   : "memory");
      barrier_arrive(ring.full(at.slot));
      at.advance();
    }
  });
}

}  // namespace sluice::cuda
