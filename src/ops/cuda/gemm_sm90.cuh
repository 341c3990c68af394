#pragma once
// What the host decides for a launch of gemm_sm90, and how a block of threads finds its work in it.

#include <cuda.h>

#include "ops/cuda/gemm_sm90.h"

namespace sluice::cuda {

/// Row tile: 16 slots of 8 rows. Plain: 16 row groups of one segment. Gate|up: 8 groups of gate, then the same 8 of up.
inline constexpr int kTileGroups = 16;
inline constexpr int kTileRows = kTileGroups * kRowGroup;
/// Threads of a warpgroup. A block has two of them that multiply.
inline constexpr int kGroupThreads = 128;

struct GemmKernelSegment {
  const float* scales;       // null: f16
  const float* row_factors;  // null: FP8
  bf16* out;
  int64_t out_stride;
  int num_out;
  int first_tile;
  bool in_vectors;  // may `out` be written 16 bytes at a time?
};

struct GemmParams {
  CUtensorMap x;                       // [K / 64][rows][64] f16, box 2 x tokens x 64, swizzled
  CUtensorMap weights[kGemmSegments];  // [row groups][words of 4 bytes], box 8 x 256
  GemmKernelSegment segments[kGemmSegments];
  int num_segments;  // gate and up count as one
  bool is_pair;      // gate|up
  bool is_residual;
  int num_rows;
  int num_blocks;  // of 128 k
  void* operand;
  int64_t operand_stride;
  int* range_flag;
  float* partials;
  int* tickets;
  // Units: first those of the split tiles (num_slices each), then the whole tiles. Split tiles are the last ones.
  int num_units;
  int num_tiles;
  int num_whole_tiles;
  int num_slices;
};

inline GemmKernelSegment kernel_segment(const GemmSegment& segment, int first_tile) {
  const bool in_vectors =
      segment.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(segment.out) % 16 == 0;
  return {segment.weight.scales,
          segment.weight.row_factors,
          static_cast<bf16*>(segment.out),
          segment.out_stride,
          segment.weight.num_out,
          first_tile,
          in_vectors};
}

/// A row tile, or a slice of its parts.
struct GemmUnit {
  int tile;
  int slice;  // -1: the whole tile
  int first_part, end_part;
};

__device__ __forceinline__ GemmUnit gemm_unit(const GemmParams& params, int unit,
                                              int num_split_units) {
  if (unit >= num_split_units) return {unit - num_split_units, -1, 0, kNumParts};
  const int tile = unit / params.num_slices;
  const int slice = unit - tile * params.num_slices;
  const int width = params.num_slices == kNumParts ? 1 : 3;
  const int end = slice * width + width;
  return {params.num_whole_tiles + tile, slice, slice * width, end < kNumParts ? end : kNumParts};
}

/// Where a tile's rows lie.
struct GemmPlace {
  int segment;
  int tile;  // of the segment
};
__device__ __forceinline__ GemmPlace gemm_place(const GemmParams& params, int tile) {
  int segment = 0;
  for (int i = 1; i < params.num_segments; ++i) {
    if (tile >= params.segments[i].first_tile) segment = i;
  }
  return {segment, tile - params.segments[segment].first_tile};
}

}  // namespace sluice::cuda
