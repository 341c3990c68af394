#pragma once
// What the launches of decode's and of prompts' wgmma kernels are checked for, and fill in alike.

#include "ops/cuda/gemm_sm90.cuh"
#include "ops/cuda/tensor_map.h"

namespace sluice::cuda {
namespace {

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

/// What both kernels ask of a launch.
bool well_formed(const Gemm& gemm) {
  if (gemm.num_rows < 1 || gemm.num_in < kScaleBlock || gemm.num_in % kScaleBlock != 0 ||
      gemm.x_stride % kPackBlock != 0 || gemm.epilogue == GemmEpilogue::kStoreFp32) {
    return false;
  }
  if (gemm.num_segments < 1 || gemm.num_segments > kGemmSegments) return false;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const PackedWeight& weight = gemm.segments[i].weight;
    if (weight.num_in != gemm.num_in || weight.num_out < 1) return false;
    if ((weight.scales == nullptr) == (weight.row_factors == nullptr)) return false;
  }
  if (gemm.epilogue != GemmEpilogue::kGateUp) return true;
  const PackedWeight& gate = gemm.segments[0].weight;
  const PackedWeight& up = gemm.segments[1].weight;
  return gemm.num_segments == 2 && gate.num_out == up.num_out && gate.num_out % kPackBlock == 0 &&
         gemm.operand_stride % kPackBlock == 0 &&
         (gate.scales == nullptr) == (up.scales == nullptr);
}

/// Everything but the token map and the plan. False if a tensor map cannot be encoded. Params: GemmParams or PrefillParams.
template <typename Params>
bool fill_gemm(const Gemm& gemm, Params* params, int* num_tiles) {
  const bool pair = gemm.epilogue == GemmEpilogue::kGateUp;
  const int tile_rows = pair ? kTileRows / 2 : kTileRows;
  *num_tiles = 0;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const GemmSegment& segment = gemm.segments[i];
    if (!encode_weights(segment.weight, &params->weights[i])) return false;
    params->segments[i] = kernel_segment(segment, *num_tiles);
    if (!pair || i == 0) *num_tiles += (segment.weight.num_out + tile_rows - 1) / tile_rows;
  }
  params->num_segments = pair ? 1 : gemm.num_segments;
  params->is_pair = pair;
  params->is_residual = gemm.epilogue == GemmEpilogue::kResidual;
  params->num_rows = gemm.num_rows;
  params->num_blocks = gemm.num_in / kScaleBlock;
  params->operand = gemm.operand;
  params->operand_stride = gemm.operand_stride;
  params->range_flag = gemm.range_flag;
  params->partials = gemm.workspace.partials;
  params->tickets = gemm.workspace.tickets;
  return true;
}

}  // namespace
}  // namespace sluice::cuda
