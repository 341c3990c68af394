#pragma once
// Host side of gemm_sm90: encodes the token map, cuts a launch into units, starts a kernel.

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gemm_host.cuh"
#include "ops/cuda/gemm_ring.cuh"

namespace sluice::cuda {
namespace {

/// A stage of the token ring: `tokens` rows by two halves of 64 k; rows beyond the matrix arrive as zeros.
bool encode_tokens(const Gemm& gemm, int tokens, CUtensorMap* map) {
  const cuuint64_t dims[3] = {kPackBlock, static_cast<cuuint64_t>(gemm.num_rows),
                              static_cast<cuuint64_t>(gemm.num_in / kPackBlock)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(gemm.x_stride) * 2, kPackBlock * 2};
  const cuuint32_t box[3] = {kPackBlock, static_cast<cuuint32_t>(tokens), kScaleBlock / kPackBlock};
  const cuuint32_t steps[3] = {1, 1, 1};
  return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(gemm.x), dims,
                        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// What the workspace holds of slices.
constexpr int kMaxSplitUnits =
    static_cast<int>(kGemmPartialBytes / (kTileRows * kGemmSkinnyRows * sizeof(float)));

/// The longest multiprocessor's work in parts if `tiles` are cut into `slices` each; joining slices counts as a part.
int longest(int tiles, int slices, int num_multiprocessors) {
  const int width = (kNumParts + slices - 1) / slices;
  const int rounds = (tiles * slices + num_multiprocessors - 1) / num_multiprocessors;
  return rounds * width + (slices > 1 ? 1 : 0);
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
  if (!fill_gemm(gemm, params, &params->num_tiles)) return false;
  plan_units(params->num_tiles, num_multiprocessors, params);
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

}  // namespace
}  // namespace sluice::cuda
