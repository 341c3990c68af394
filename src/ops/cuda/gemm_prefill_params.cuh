#pragma once
// What the host decides for a launch of gemm_prefill, and how a block of threads finds its work in it.

#include <cuda.h>

#include "ops/cuda/gemm_prefill.h"
#include "ops/cuda/gemm_sm90.cuh"

namespace sluice::cuda {

/// Row tiles are those of gemm_sm90.cuh. A cluster of kBlocks takes kBlocks neighbouring ones, the same tokens and the same slices; a row tile behind the last is
/// multiplied and thrown away.
struct PrefillParams {
  CUtensorMap x;  // [rows][K] f16, box tokens of a block's share x 64, swizzled
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
  uint64_t weights_hint;  // of the second-level cache
  // The first num_whole_tiles row tiles are summed whole, the others in num_slices slices.
  int num_whole_tiles;
  int num_slices;
  // Units, one a cluster: slices that are shared out, then split tiles summed in turn by one cluster, then whole tiles. Tokens fastest.
  int num_token_tiles;
  int num_shared;   // tiles of a cluster whose slices are shared out
  int num_in_turn;  // and those summed in turn
  int num_units;
};

/// A tile and the slices of it that a cluster takes, one behind the other.
struct PrefillUnit {
  int tile;  // of the calling block
  int token_first;
  int shared;  // place among the tiles (of blocks) whose slices are shared out, or -1
  int first_slice, end_slice;  // of num_slices
  int num_slices;
};

template <int kTokens, int kBlocks>
__device__ __forceinline__ PrefillUnit prefill_unit(const PrefillParams& params, int unit,
                                                    int rank) {
  const int num_tokens = params.num_token_tiles;
  const int num_slices = params.num_slices;
  const int num_shared_units = params.num_shared * num_slices;
  if (unit < num_shared_units) {
    const int at = unit / num_slices;
    const int slice = unit - at * num_slices;
    const int split = params.num_in_turn + at;
    return {params.num_whole_tiles + split / num_tokens * kBlocks + rank,
            split % num_tokens * kTokens,
            at * kBlocks + rank,
            slice,
            slice + 1,
            num_slices};
  }
  const int split = unit - num_shared_units;
  if (split < params.num_in_turn) {
    return {params.num_whole_tiles + split / num_tokens * kBlocks + rank,
            split % num_tokens * kTokens,
            -1,
            0,
            num_slices,
            num_slices};
  }
  const int whole = split - params.num_in_turn;
  return {whole / num_tokens * kBlocks + rank, whole % num_tokens * kTokens, -1, 0, 1, 1};
}

/// First block of 128 k of a slice.
__device__ __forceinline__ int slice_begin(int slice, int num_slices, int num_blocks) {
  return slice * num_blocks / num_slices;
}

/// This cluster's units, slice by slice: f(unit, slice, first block, end block).
template <int kTokens, int kBlocks, typename F>
__device__ __forceinline__ void for_slices(const PrefillParams& params, int rank, F f) {
  const int step = static_cast<int>(gridDim.x) / kBlocks;
  for (int u = static_cast<int>(blockIdx.x) / kBlocks; u < params.num_units; u += step) {
    const PrefillUnit unit = prefill_unit<kTokens, kBlocks>(params, u, rank);
    for (int slice = unit.first_slice; slice < unit.end_slice; ++slice) {
      f(unit, slice, slice_begin(slice, unit.num_slices, params.num_blocks),
        slice_begin(slice + 1, unit.num_slices, params.num_blocks));
    }
  }
}

/// Where a row tile lies; one behind the last lies behind the last segment.
__device__ __forceinline__ GemmPlace prefill_place(const PrefillParams& params, int tile) {
  int segment = 0;
#pragma unroll 1
  for (int i = 1; i < params.num_segments; ++i) {
    if (tile >= params.segments[i].first_tile) segment = i;
  }
  return {segment, tile - params.segments[segment].first_tile};
}

}  // namespace sluice::cuda
