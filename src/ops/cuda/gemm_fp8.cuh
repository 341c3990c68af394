#pragma once
// Kernel of gemm_fp8.h.
//
// A block takes tiles of 128 tokens by kPieces x kRows weight rows, tokens fastest, so that weights come from memory once. Tokens are A and packed weights B of the matrix instruction, both in shared
// memory and neither converted: the tensor copy swizzles packed weights on the way. Two consumer warpgroups have 64 tokens each; while one adds a piece's sums to its totals, the other's multiply.
// Two blocks of a cluster share their weights: each fetches a piece for both.

#include <cuda.h>

#include "ops/cuda/gemm_fp8.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/tma.cuh"
#include "ops/cuda/wgmma_fp8.cuh"

namespace sluice::cuda {

inline constexpr int kFp8TileTokens = 128;
/// Columns that certainly share their weights' scales, whatever tile they are in.
inline constexpr int kFp8ScaleColumns = 64;
inline constexpr int kFp8Consumers = 256;
inline constexpr int kFp8Threads = kFp8Consumers + 128;
inline constexpr int kFp8Warps = kFp8Consumers / 32;

struct Fp8Segment {
  const float* scales;
  void* out;
  int64_t out_stride;
  int num_out;
  int first_tile;
};

struct Fp8Params {
  CUtensorMap x;         // [rows][K] bytes, box 128 x 128, 128-byte swizzle
  CUtensorMap x_scales;  // [K / 128][rows] fp32, box 1 x 128
  CUtensorMap weights
      [kGemmSegments];  // [row groups][blocks of 64 k][8 rows][64 bytes], box kCopyGroups x 2 x 8 x 64, 64-byte swizzle
  Fp8Segment segments[kGemmSegments];
  int num_segments;
  int num_rows;
  int num_blocks;       // of 128 k
  int num_tiles;        // of weight rows
  int num_token_tiles;  // of a cluster
  int num_units;        // one times the other
  int band;             // token tiles that are taken with all row tiles before others are begun
  GemmEpilogue epilogue;
  Fp8Operands operand;
  int* range_flag;
};

/// kRows: weight rows of a matrix instruction, 128 or 192. Gate|up: gate is piece 0 and up piece 1, 128 rows each.
template <int kRows_, int kPieces_, int kCluster_, bool kPair_>
struct Fp8Shape {
  static constexpr int kRows = kRows_;
  static constexpr int kPieces = kPieces_;
  static constexpr int kCluster = kCluster_;
  static constexpr bool kPair = kPair_;
  static constexpr int kTileRows = kPair ? kRows : kPieces * kRows;
  static constexpr int kSums = kRows / 2;  // of a lane, of a piece
  static constexpr int kPieceGroups = kRows / kRowGroup;
  /// Row groups that one copy brings, and copies of a block of threads a stage.
  static constexpr int kCopyGroups =
      kPieces * kPieceGroups / (kCluster > kPieces ? kCluster : kPieces);
  static constexpr int kCopies = kPieces * kPieceGroups / kCopyGroups / kCluster;
  static constexpr int kTokenBytes = kFp8TileTokens * kScaleBlock;
  static constexpr int kPieceBytes = kRows * kScaleBlock;
  static constexpr int kScaleBytes = kFp8TileTokens * 4;
  static constexpr int kStageBytes = kTokenBytes + kPieces * kPieceBytes;
  static constexpr int kAsideBytes = 2048;  // of a consumer warp, for what it stores
  static constexpr int kSmallBytes = 32;    // a stage's two barriers and the scales of its weights
  static constexpr int kSharedMax = 226 * 1024;
  static constexpr int kStages =
      (kSharedMax - kFp8Warps * kAsideBytes) / (kStageBytes + kScaleBytes + kSmallBytes);
  static constexpr int kScaleBegin = kStages * kStageBytes;
  static constexpr int kAsideBegin = kScaleBegin + kStages * kScaleBytes;
  static constexpr int kSmallBegin = kAsideBegin + kFp8Warps * kAsideBytes;
  static constexpr int kSharedBytes = 1024 + kSmallBegin + kStages * kSmallBytes;
  static_assert(kCopies * kCluster * kCopyGroups == kPieces * kPieceGroups);
  static_assert(kRows == kScaleBlock || (kRows == 192 && kPieces == 1));
  static_assert(!kPair || (kPieces == 2 && kRows == kScaleBlock));
  static_assert(kPieceBytes % 1024 == 0 && kSharedBytes <= 1024 + kSharedMax);
};

template <typename Shape>
struct Fp8Ring {
  uint32_t base;  // 1,024-byte aligned: the swizzle goes by the address

  __device__ uint32_t tokens(int slot) const { return base + slot * Shape::kStageBytes; }
  __device__ uint32_t weights(int slot, int piece) const {
    return tokens(slot) + Shape::kTokenBytes + piece * Shape::kPieceBytes;
  }
  __device__ uint32_t scales(int slot) const {
    return base + Shape::kScaleBegin + slot * Shape::kScaleBytes;
  }
  __device__ uint32_t aside(int warp) const {
    return base + Shape::kAsideBegin + warp * Shape::kAsideBytes;
  }
  __device__ uint32_t full(int slot) const {
    return base + Shape::kSmallBegin + slot * Shape::kSmallBytes;
  }
  __device__ uint32_t empty(int slot) const { return full(slot) + 8; }
  __device__ uint32_t weight_scales(int slot) const { return full(slot) + 16; }

  /// By one thread, before the cluster's first barrier. A stage is full with what three feeders bring, and empty when every consumer warp of the cluster has left it.
  __device__ void init() const {
    for (int i = 0; i < Shape::kStages; ++i) {
      barrier_init(full(i), 3);
      barrier_init(empty(i), kFp8Warps * Shape::kCluster);
    }
    barrier_init_fence();
  }
};

/// A tile of a block.
struct Fp8Place {
  int segment;
  int tile;  // of the segment
  int token_first;
};

/// This block's tiles: f(place).
template <typename Shape, typename F>
__device__ __forceinline__ void for_fp8_tiles(const Fp8Params& params, F f) {
  const auto cluster = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const auto num_clusters = static_cast<int>(gridDim.x) / Shape::kCluster;
  const auto rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
  for (int unit = cluster; unit < params.num_units; unit += num_clusters) {
    const int band = unit / (params.band * params.num_tiles);
    const int band_first = band * params.band;
    const int band_width = min(params.band, params.num_token_tiles - band_first);
    const int in_band = unit - band_first * params.num_tiles;
    const int tile = in_band / band_width;
    const int token_tile = band_first + in_band - tile * band_width;
    int segment = 0;
    for (int i = 1; i < params.num_segments; ++i) {
      if (tile >= params.segments[i].first_tile) segment = i;
    }
    f(Fp8Place{segment, tile - params.segments[segment].first_tile,
               (token_tile * Shape::kCluster + rank) * kFp8TileTokens});
  }
}

/// One thread. The blocks of a cluster each fetch a share of the weights for all.
template <typename Shape>
__device__ void feed_fp8_weights(const Fp8Params& params, Fp8Ring<Shape> ring) {
  constexpr uint16_t kAll = (1 << Shape::kCluster) - 1;
  RingCursor<Shape::kStages> at;
  const auto rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
  for_fp8_tiles<Shape>(params, [&](Fp8Place place) {
    for (int b = 0; b < params.num_blocks; ++b) {
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
    for (int b = 0; b < params.num_blocks; ++b) {
      barrier_wait(ring.empty(at.slot), at.parity ^ 1);
      const uint32_t full = ring.full(at.slot);
      barrier_expect(full, Shape::kTokenBytes + Shape::kScaleBytes);
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
    const Fp8Segment& segment = params.segments[place.segment];
    const int row = place.tile * Shape::kTileRows / kScaleBlock;
    const int last = (segment.num_out - 1) / kScaleBlock;
    const float* first = segment.scales + static_cast<int64_t>(row) * params.num_blocks;
    const float* second = Shape::kPair ? params.segments[1].scales + (first - segment.scales)
                          : row < last ? first + params.num_blocks
                                       : first;
    float2 ahead = make_float2(__ldg(first), __ldg(second));
    for (int b = 0; b < params.num_blocks; ++b) {
      const float2 scales = ahead;
      if (b + 1 < params.num_blocks) {
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

/// Totals of a tile.
template <typename Shape>
__device__ __forceinline__ void sum_fp8_tile(const Fp8Params& params, Fp8Ring<Shape> ring,
                                             RingCursor<Shape::kStages>& at, Fp8Place place,
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
  for (int b = 0; b < params.num_blocks; ++b) {
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
        if (b + 1 < params.num_blocks) {
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
