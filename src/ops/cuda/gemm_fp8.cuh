#pragma once
// What the host decides for a launch of gemm_fp8.h, what lies where in a block's shared memory, and which tiles a block takes.
//
// A tile is 128 tokens by kPieces x kRows weight rows. Tokens are A and packed weights B of the matrix instruction, both in shared memory and neither converted: the tensor copy swizzles packed
// weights on the way. Three threads feed a ring of stages of 128 k (gemm_fp8_feed.cuh), two warpgroups with 64 tokens each sum (gemm_fp8_sum.cuh) and store (gemm_fp8_epilogue.cuh).
// The blocks of a cluster have the same weights and tokens side by side: each fetches a share of the weights for all.

#include <cuda.h>

#include "ops/cuda/gemm_fp8.h"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda {

inline constexpr int kFp8TileTokens = 128;
/// Columns that certainly share their weights' scales, whatever tile they are in.
inline constexpr int kFp8ScaleColumns = 64;
inline constexpr int kFp8Consumers = 256;
inline constexpr int kFp8Threads = kFp8Consumers + 128;
inline constexpr int kFp8Warps = kFp8Consumers / 32;
/// Of K, of a split tile.
inline constexpr int kFp8Slices = 4;

struct Fp8Segment {
  const float* scales;  // of a side tile the row factors
  void* out;
  int64_t out_stride;
  int num_out;
  int first_tile;
};

struct Fp8Params {
  CUtensorMap x;         // [rows][K] bytes, box 128 x 128, 128-byte swizzle
  CUtensorMap x_scales;  // [K / 128][rows] fp32, box 1 x 128
  CUtensorMap exact_x;   // [rows][K] f16, box 128 x 64, 128-byte swizzle
  /// [row groups][blocks of 64 k][8 rows][64 bytes], box kCopyGroups x 2 x 8 x 64, 64-byte swizzle.
  /// Of side tiles, behind the others: [row groups][halves of blocks][8 rows][64 bytes], box 8 x 2 x 8 x 64.
  CUtensorMap weights[kGemmSegments];
  Fp8Segment segments[kGemmSegments];
  int num_segments;    // in FP8
  int num_side_units;  // before all others
  int num_rows;
  int tile_tokens;      // of a block: tiles share the rows evenly, at most kFp8TileTokens each
  int num_blocks;       // of 128 k
  int num_tiles;        // of weight rows, whole ones first
  int num_whole_tiles;  // the others are split
  int num_shared;  // tiles of a cluster, by tokens, whose slices are shared out; their units come first
  int num_in_turn;  // those whose slices a cluster takes in turn: behind, every turn_stride'th unit, so that few do it at once
  int turn_stride;
  int num_token_tiles;  // of a cluster
  float* partials;
  int* tickets;
  int num_units;  // one times the other, and side tiles'
  int band;       // token tiles that are taken with all row tiles before others are begun
  GemmEpilogue epilogue;
  Fp8Operands operand;
  int* range_flag;
};

/// kRows: weight rows of a matrix instruction, 128 or 192. kPair, gate|up: gate is piece 0 and up piece 1, 128 rows each. kSide: there are side tiles (gemm_fp8_side.cuh).
/// What a kernel takes beside whole tiles.
enum class Fp8Beside { kNothing, kSides, kSlices };

template <int kRows_, int kPieces_, int kCluster_, bool kPair_, Fp8Beside kBeside>
struct Fp8Shape {
  static constexpr int kRows = kRows_;
  static constexpr int kPieces = kPieces_;
  static constexpr int kCluster = kCluster_;
  static constexpr bool kPair = kPair_;
  static constexpr bool kSide = kBeside == Fp8Beside::kSides;
  static constexpr bool kSplit = kBeside == Fp8Beside::kSlices;
  /// A thread's.
  static constexpr int kFeederRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
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
  bool is_side = false;
  // Of K:
  int num_slices = 1;
  int first_slice = 0;
  /// By which its tile is known where the slices are shared out, and this is one; else it is all of them.
  int shared = -1;
};

/// Behind the last row of a place.
__device__ __forceinline__ int fp8_row_end(const Fp8Params& params, Fp8Place place) {
  return min(params.num_rows, place.token_first + params.tile_tokens);
}

/// First 128 of K of a slice.
SLUICE_HOST_DEVICE constexpr int fp8_slice_begin(int slice, int num_slices, int num_blocks) {
  return slice * num_blocks / num_slices;
}

/// Tile and tokens of unit `unit` of num_tiles tiles from first_tile on.
template <typename Shape>
__device__ __forceinline__ Fp8Place fp8_place(const Fp8Params& params, int unit, int first_tile,
                                              int num_tiles, int rank) {
  const int band = unit / (params.band * num_tiles);
  const int band_first = band * params.band;
  const int band_width = min(params.band, params.num_token_tiles - band_first);
  const int in_band = unit - band_first * num_tiles;
  const int tile_of_these = in_band / band_width;
  const int token_tile = band_first + in_band - tile_of_these * band_width;
  const int tile = first_tile + tile_of_these;
  int segment = 0;
  for (int i = 1; i < params.num_segments; ++i) {
    if (tile >= params.segments[i].first_tile) segment = i;
  }
  return {segment, tile - params.segments[segment].first_tile,
          (token_tile * Shape::kCluster + rank) * params.tile_tokens};
}

/// Split tile `unit`, all of K.
template <typename Shape>
__device__ __forceinline__ Fp8Place fp8_split_place(const Fp8Params& params, int unit, int rank) {
  Fp8Place place = fp8_place<Shape>(params, unit, params.num_whole_tiles,
                                    params.num_tiles - params.num_whole_tiles, rank);
  place.num_slices = kFp8Slices;
  return place;
}

/// What unit `unit` is for block `rank` of a cluster.
template <typename Shape>
__device__ __forceinline__ Fp8Place fp8_unit(const Fp8Params& params, int unit, int rank) {
  if constexpr (Shape::kSide) {
    if (unit < params.num_side_units) {
      const int side = unit / params.num_token_tiles;
      const int token_tile = unit - side * params.num_token_tiles;
      return {params.num_segments + side, 0,
              (token_tile * Shape::kCluster + rank) * params.tile_tokens, true};
    }
    unit -= params.num_side_units;
  }
  if constexpr (Shape::kSplit) {
    const int num_slice_units = params.num_shared * kFp8Slices;
    if (unit < num_slice_units) {
      const int tile = unit / kFp8Slices;
      Fp8Place place = fp8_split_place<Shape>(params, tile, rank);
      place.first_slice = unit - tile * kFp8Slices;
      place.shared = tile * Shape::kCluster + rank;
      return place;
    }
    unit -= num_slice_units;
    const int turn = unit / params.turn_stride;
    if (turn < params.num_in_turn && unit == turn * params.turn_stride) {
      return fp8_split_place<Shape>(params, params.num_shared + turn, rank);
    }
    unit -= min(turn + 1, params.num_in_turn);
  }
  return fp8_place<Shape>(params, unit, 0, params.num_whole_tiles, rank);
}

/// This block's tiles: f(place).
template <typename Shape, typename F>
__device__ __forceinline__ void for_fp8_tiles(const Fp8Params& params, F f) {
  const auto cluster = static_cast<int>(blockIdx.x) / Shape::kCluster;
  const auto num_clusters = static_cast<int>(gridDim.x) / Shape::kCluster;
  const auto rank = static_cast<int>(blockIdx.x) % Shape::kCluster;
#pragma unroll 1
  for (int unit = cluster; unit < params.num_units; unit += num_clusters) {
    f(fp8_unit<Shape>(params, unit, rank));
  }
}

/// The 128s of K that a place takes.
struct Fp8Blocks {
  int begin, end;
};
__device__ __forceinline__ Fp8Blocks fp8_blocks(const Fp8Params& params, Fp8Place place) {
  const int end = place.shared >= 0 ? place.first_slice + 1 : place.num_slices;
  return {fp8_slice_begin(place.first_slice, place.num_slices, params.num_blocks),
          fp8_slice_begin(end, place.num_slices, params.num_blocks)};
}

}  // namespace sluice::cuda
