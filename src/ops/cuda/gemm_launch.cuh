#pragma once
// Host side of gemm_sm90: checks a launch, encodes its tensor maps, cuts it into units, starts a kernel.

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gemm_ring.cuh"
#include "ops/cuda/tensor_map.h"

namespace sluice::cuda {
namespace {

/// A stage of the token ring: `tokens` rows by `packs` times 64 k; rows beyond the matrix arrive as zeros.
bool encode_tokens(const Gemm& gemm, int tokens, int packs, CUtensorMap* map) {
  const cuuint64_t dims[3] = {kPackBlock, static_cast<cuuint64_t>(gemm.num_rows),
                              static_cast<cuuint64_t>(gemm.num_in / kPackBlock)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(gemm.x_stride) * 2, kPackBlock * 2};
  const cuuint32_t box[3] = {kPackBlock, static_cast<cuuint32_t>(tokens),
                             static_cast<cuuint32_t>(packs)};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(gemm.x), dims,
                        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Half a tile's row groups by 1,024 bytes; row groups beyond the weight arrive as zeros.
bool encode_weights(const PackedWeight& weight, CUtensorMap* map) {
  const int block_bytes = weight.scales != nullptr ? kFp8BlockBytes : kF16BlockBytes;
  const cuuint64_t row_bytes =
      static_cast<cuuint64_t>(weight.num_in / kPackBlock) * static_cast<cuuint64_t>(block_bytes);
  const cuuint64_t num_groups =
      static_cast<cuuint64_t>((weight.num_out + kRowGroup - 1) / kRowGroup);
  const cuuint64_t dims[2] = {row_bytes / 4, num_groups};
  const cuuint64_t strides[1] = {row_bytes};
  const cuuint32_t box[2] = {256, kTileGroups / 2};
  const cuuint32_t steps[2] = {1, 1};
  return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, const_cast<uint8_t*>(weight.data),
                        dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// What the workspace holds of slices.
constexpr int kMaxSplitUnits =
    static_cast<int>(kGemmPartialBytes / (kTileRows * kGemmSkinnyRows * sizeof(float)));

/// Longest block's work in parts if `tiles` are cut into `slices` each; joining slices counts as a part.
int longest(int tiles, int slices, int num_blocks) {
  const int width = (kNumParts + slices - 1) / slices;
  return (tiles * slices + num_blocks - 1) / num_blocks * width + (slices > 1 ? 1 : 0);
}

/// Whole row tiles as far as they fill every multiprocessor evenly, the rest in the slices that end soonest.
void plan_units(int num_tiles, int num_multiprocessors, GemmParams* params) {
  const int rest = num_tiles % num_multiprocessors;
  int slices = 1;
  for (const int candidate : {3, kNumParts}) {
    if (rest * candidate > kMaxSplitUnits) continue;
    if (longest(rest, candidate, num_multiprocessors) <
        longest(rest, slices, num_multiprocessors)) {
      slices = candidate;
    }
  }
  params->num_whole_tiles = slices == 1 ? num_tiles : num_tiles - rest;
  params->num_slices = slices;
  params->num_units = params->num_whole_tiles + (num_tiles - params->num_whole_tiles) * slices;
}

/// Everything but the token map. False if a tensor map cannot be encoded.
bool fill_params(const Gemm& gemm, int num_multiprocessors, GemmParams* params) {
  const bool pair = gemm.epilogue == GemmEpilogue::kGateUp;
  const int tile_rows = pair ? kTileRows / 2 : kTileRows;
  int num_tiles = 0;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const GemmSegment& segment = gemm.segments[i];
    if (!encode_weights(segment.weight, &params->weights[i])) return false;
    params->segments[i] = kernel_segment(segment, num_tiles);
    if (!pair || i == 0) num_tiles += (segment.weight.num_out + tile_rows - 1) / tile_rows;
  }
  params->num_segments = pair ? 1 : gemm.num_segments;
  params->num_rows = gemm.num_rows;
  params->num_blocks = gemm.num_in / kScaleBlock;
  params->is_pair = pair;
  params->is_residual = gemm.epilogue == GemmEpilogue::kResidual;
  params->operand = gemm.operand;
  params->operand_stride = gemm.operand_stride;
  params->range_flag = gemm.range_flag;
  params->partials = gemm.workspace.partials;
  params->tickets = gemm.workspace.tickets;
  params->num_tiles = num_tiles;
  plan_units(num_tiles, num_multiprocessors, params);
  return true;
}

template <void (*kKernel)(GemmParams)>
cudaError_t launch(int shared_bytes, const GemmParams& params, int num_multiprocessors,
                   cudaStream_t stream) {
  const int num_blocks =
      params.num_units < num_multiprocessors ? params.num_units : num_multiprocessors;
  return launch_chained<kKernel>(
      {dim3(static_cast<unsigned>(num_blocks)), kGemmThreads, shared_bytes}, stream, params);
}

bool well_formed(const Gemm& gemm) {
  const bool pair = gemm.epilogue == GemmEpilogue::kGateUp;
  if (gemm.num_rows < 1 || gemm.num_in < kScaleBlock || gemm.num_in % kScaleBlock != 0)
    return false;
  if (gemm.x_stride % kPackBlock != 0 || gemm.epilogue == GemmEpilogue::kStoreFp32) return false;
  if (gemm.num_segments < 1 || gemm.num_segments > kGemmSegments) return false;
  for (int i = 0; i < gemm.num_segments; ++i) {
    if (gemm.segments[i].weight.num_in != gemm.num_in) return false;
  }
  if (!pair) return true;
  const PackedWeight& gate = gemm.segments[0].weight;
  const PackedWeight& up = gemm.segments[1].weight;
  return gemm.num_segments == 2 && gate.num_out == up.num_out && gate.num_out % kPackBlock == 0 &&
         gemm.operand_stride % kPackBlock == 0 &&
         (gate.scales == nullptr) == (up.scales == nullptr);
}

}  // namespace
}  // namespace sluice::cuda
