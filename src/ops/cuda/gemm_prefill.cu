// Implements ops/cuda/gemm_prefill.h: what a launch is made of, and which kernel takes it.
#include "ops/cuda/gemm_prefill.cuh"

namespace sluice::cuda {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// cuTensorMapEncodeTiled, found through the runtime so that nothing links the driver. Null if it is not there.
EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                                12000, cudaEnableDefault, &result);
    return status == cudaSuccess ? reinterpret_cast<EncodeTiled>(entry) : nullptr;
  }();
  return found;
}

/// A matrix of `rows` rows; a box is box[1] rows by box[0] elements. What lies beyond the matrix arrives as zeros.
bool encode(CUtensorMapDataType type, const void* data, uint64_t rows, uint64_t row_elements,
            uint64_t row_bytes, const cuuint32_t (&box)[2], CUtensorMapSwizzle swizzle,
            CUtensorMap* map) {
  const cuuint64_t dims[2] = {row_elements, rows};
  const cuuint64_t strides[1] = {row_bytes};
  const cuuint32_t steps[2] = {1, 1};
  return encode_tiled()(map, type, 2, const_cast<void*>(data), dims, strides, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool encode_tokens(const Gemm& gemm, int tokens, CUtensorMap* map) {
  return encode(CU_TENSOR_MAP_DATA_TYPE_FLOAT16, gemm.x, static_cast<uint64_t>(gemm.num_rows),
                static_cast<uint64_t>(gemm.num_in), static_cast<uint64_t>(gemm.x_stride) * 2,
                {kPackBlock, static_cast<cuuint32_t>(tokens)}, CU_TENSOR_MAP_SWIZZLE_128B, map);
}

/// Half a tile's row groups by 1,024 bytes.
bool encode_weights(const PackedWeight& weight, CUtensorMap* map) {
  const int block_bytes = weight.scales != nullptr ? kFp8BlockBytes : kF16BlockBytes;
  const auto row_bytes = static_cast<uint64_t>(weight.num_in / kPackBlock * block_bytes);
  return encode(CU_TENSOR_MAP_DATA_TYPE_UINT32, weight.data,
                static_cast<uint64_t>((weight.num_out + kRowGroup - 1) / kRowGroup), row_bytes / 4,
                row_bytes, {256, kTileGroups / 2}, CU_TENSOR_MAP_SWIZZLE_NONE, map);
}

/// The device that a prompt's tiles are split for, whatever it runs on: the split is part of the order of sums.
constexpr int kPlannedBlocks = 132;
/// Slots of sums in the workspace, beside a running sum for every block.
constexpr int kSharedSlotsMax =
    static_cast<int>(kGemmPrefillPartialBytes / (kTileRows * 256 * sizeof(float))) - kPlannedBlocks;

/// Rounds that `tiles` cut into `slices` take, in eighths of a tile; joining slices counts as one.
int rounds_of(int tiles, int slices) {
  return (tiles * slices + kPlannedBlocks - 1) / kPlannedBlocks * 8 / slices + (slices > 1 ? 1 : 0);
}

/// The order of sums: whole row tiles as far as they fill every block evenly, the rest in the slices that end soonest for a tile of tokens.
void split_tiles(int num_tiles, PrefillParams* params) {
  const int rest = num_tiles % kPlannedBlocks;
  int slices = 1;
  for (const int candidate : {3, 8}) {
    if (candidate > params->num_blocks) continue;
    if (rounds_of(rest, candidate) < rounds_of(rest, slices)) slices = candidate;
  }
  params->num_whole_tiles = slices == 1 ? num_tiles : num_tiles - rest;
  params->num_slices = slices;
}

/// Divides the rows into tiles of `tokens`: split tiles in turn for whole rounds, their slices shared out for the rest if that ends sooner. Returns about how long
/// the launch takes, in rows of a whole tile.
float plan_tokens(int num_rows, int tokens, int num_tiles, int num_clusters, int num_blocks,
                  PrefillParams* params) {
  const int num_token_tiles = (num_rows + tokens - 1) / tokens;
  const int split_tiles = num_tiles - params->num_whole_tiles;
  const int num_whole = (params->num_whole_tiles + num_blocks - 1) / num_blocks * num_token_tiles;
  const int num_split = (split_tiles + num_blocks - 1) / num_blocks * num_token_tiles;
  const int slices = params->num_slices;
  const int left = (num_whole + num_split) % num_clusters;
  const int shared = left < num_split ? left : num_split;
  const int rounds = (shared * slices + num_clusters - 1) / num_clusters;
  const float shared_time = static_cast<float>(rounds) / static_cast<float>(slices) + 0.05f;
  const bool shares = slices > 1 && shared > 0 && shared * num_blocks * slices <= kSharedSlotsMax &&
                      2 * shared * num_blocks <= kGemmTickets &&
                      (left > shared || shared_time < 1.0f);
  params->num_token_tiles = num_token_tiles;
  params->num_shared = shares ? shared : 0;
  params->num_in_turn = num_split - params->num_shared;
  params->num_units = params->num_shared * slices + params->num_in_turn + num_whole;
  const int full = num_whole + params->num_in_turn;
  const float time =
      static_cast<float>((full + num_clusters - 1) / num_clusters) + (shares ? shared_time : 0.0f);
  constexpr float kTileCost = 20.0f;  // of a tile, in rows: what does not depend on its rows
  return time * (static_cast<float>(tokens) + kTileCost);
}

struct Device {
  int num_multiprocessors;
};

cudaError_t find_device(Device* device) {
  int id = 0;
  const cudaError_t status = cudaGetDevice(&id);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(&device->num_multiprocessors, cudaDevAttrMultiProcessorCount, id);
}

/// A kernel of one tile: how many clusters of it run at once, and its launch.
template <int kTokens, int kBlocks>
struct PrefillKernel {
  static cudaError_t launch(const Gemm& gemm, int num_clusters, PrefillParams* params,
                            cudaStream_t stream) {
    if (!encode_tokens(gemm, kTokens / kBlocks, &params->x)) return cudaErrorInvalidValue;
    const int shared_bytes = PrefillShape<kTokens, kBlocks>::kSharedBytes;
    const cudaError_t status =
        cudaFuncSetAttribute(gemm_prefill_kernel<kTokens, kBlocks>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {kBlocks, 1, 1};
    cudaLaunchConfig_t config = {};
    const int clusters = params->num_units < num_clusters ? params->num_units : num_clusters;
    config.gridDim = dim3(static_cast<unsigned>(clusters * kBlocks));
    config.blockDim = dim3(kPrefillThreads);
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = kBlocks == 1 ? 1 : 2;
    return cudaLaunchKernelEx(&config, gemm_prefill_kernel<kTokens, kBlocks>, *params);
  }
};

/// Everything but the token map and the plan. False if a tensor map cannot be encoded.
bool fill_params(const Gemm& gemm, PrefillParams* params, int* num_tiles) {
  const bool pair = gemm.epilogue == GemmEpilogue::kGateUp;
  const int tile_rows = pair ? kTileRows / 2 : kTileRows;
  *num_tiles = 0;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const GemmSegment& segment = gemm.segments[i];
    if (!encode_weights(segment.weight, &params->weights[i])) return false;
    const bool in_vectors =
        segment.out_stride % 8 == 0 && reinterpret_cast<uintptr_t>(segment.out) % 16 == 0;
    params->segments[i] = {segment.weight.scales,
                           segment.weight.row_factors,
                           static_cast<bf16*>(segment.out),
                           segment.out_stride,
                           segment.weight.num_out,
                           *num_tiles,
                           in_vectors};
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

bool well_formed(const Gemm& gemm) {
  if (gemm.num_rows < 1 || gemm.num_in < kScaleBlock || gemm.num_in % kScaleBlock != 0 ||
      gemm.num_in / kScaleBlock > kPrefillBlocksMax || gemm.x_stride % kPackBlock != 0) {
    return false;
  }
  if (gemm.num_segments < 1 || gemm.num_segments > kGemmSegments) return false;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const PackedWeight& weight = gemm.segments[i].weight;
    if (weight.num_in != gemm.num_in || weight.num_out < 1) return false;
    if ((weight.scales == nullptr) == (weight.row_factors == nullptr)) return false;
  }
  if (gemm.epilogue == GemmEpilogue::kStoreFp32) return false;
  if (gemm.epilogue != GemmEpilogue::kGateUp) return true;
  const PackedWeight& gate = gemm.segments[0].weight;
  const PackedWeight& up = gemm.segments[1].weight;
  return gemm.num_segments == 2 && gate.num_out == up.num_out && gate.num_out % kPackBlock == 0 &&
         gemm.operand_stride % kPackBlock == 0 &&
         (gate.scales == nullptr) == (up.scales == nullptr);
}

/// Keeps weights that every tile of tokens reads; those that are read once should not push out what is read again.
constexpr uint64_t kEvictNormally = 0x1000000000000000;

cudaError_t launch_planned(const Gemm& gemm, int tokens, int num_tiles, int num_multiprocessors,
                           PrefillParams* params, cudaStream_t stream) {
  plan_tokens(gemm.num_rows, tokens, num_tiles, num_multiprocessors, 1, params);
  params->weights_hint = params->num_token_tiles == 1 ? kEvictFirst : kEvictNormally;
  switch (tokens) {
    case 64:
      return PrefillKernel<64, 1>::launch(gemm, num_multiprocessors, params, stream);
    case 128:
      return PrefillKernel<128, 1>::launch(gemm, num_multiprocessors, params, stream);
    case 176:
      return PrefillKernel<176, 1>::launch(gemm, num_multiprocessors, params, stream);
    case 208:
      return PrefillKernel<208, 1>::launch(gemm, num_multiprocessors, params, stream);
    default:
      return PrefillKernel<256, 1>::launch(gemm, num_multiprocessors, params, stream);
  }
}

}  // namespace

cudaError_t launch_gemm_prefill(const Gemm& gemm, cudaStream_t stream) {
  if (encode_tiled() == nullptr) return cudaErrorNotSupported;
  if (!well_formed(gemm)) return cudaErrorInvalidValue;
  Device device = {};
  const cudaError_t status = find_device(&device);
  if (status != cudaSuccess) return status;
  PrefillParams params;
  int num_tiles = 0;
  if (!fill_params(gemm, &params, &num_tiles)) return cudaErrorInvalidValue;
  split_tiles(num_tiles, &params);
  int best = 0;
  float best_time = 0.0f;
  for (const int tokens : {64, 128, 176, 208, 256}) {
    const float time =
        plan_tokens(gemm.num_rows, tokens, num_tiles, device.num_multiprocessors, 1, &params);
    if (best != 0 && time >= best_time) continue;
    best = tokens;
    best_time = time;
  }
  return launch_planned(gemm, best, num_tiles, device.num_multiprocessors, &params, stream);
}

}  // namespace sluice::cuda
