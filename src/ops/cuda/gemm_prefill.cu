// Implements ops/cuda/gemm_prefill.h: what a launch is made of, and which kernel takes it.
#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gemm_host.cuh"
#include "ops/cuda/gemm_prefill.cuh"

namespace sluice::cuda {
namespace {

/// A stage of tokens by 64 k; rows beyond the matrix arrive as zeros.
bool encode_tokens(const Gemm& gemm, int tokens, CUtensorMap* map) {
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(gemm.num_in),
                              static_cast<cuuint64_t>(gemm.num_rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(gemm.x_stride) * 2};
  const cuuint32_t box[2] = {kPackBlock, static_cast<cuuint32_t>(tokens)};
  const cuuint32_t steps[2] = {1, 1};
  return encode_tiled()(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<void*>(gemm.x), dims,
                        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/// Rows from which two blocks share token stages.
constexpr int kClusterRows = 512;

/// The device that a prompt's tiles are split for, whatever it runs on: the split is part of the order of sums.
constexpr int kPlannedBlocks = 132;
/// Slots of sums in the workspace, beside a running sum for every block.
constexpr int kSharedSlotsMax =
    static_cast<int>(kGemmPrefillPartialBytes / (kTileRows * 256 * sizeof(float))) - kPlannedBlocks;

/// About how long the last `rest` of num_tiles row tiles take in `slices` each, in 24ths of a tile: rounds of all blocks, joining the slices, and what each slice
/// costs where many tokens have a block sum it in turn.
int cost_of(int rest, int num_tiles, int slices) {
  const int rounds = (rest * slices + kPlannedBlocks - 1) / kPlannedBlocks;
  return rounds * 24 / slices + (slices > 1 ? 2 + slices * rest / num_tiles : 0);
}

/// Most 128-blocks of K for which few row tiles are summed whole: small tiles of tokens fill the device as well, and long prompts need no sums put aside.
constexpr int kWholeBlocks = 64;

/// The order of sums: whole row tiles as far as they fill every block evenly, the rest in the slices that cost least for one tile of tokens.
void split_tiles(int num_tiles, PrefillParams* params) {
  const int rest = num_tiles % kPlannedBlocks;
  int slices = 1;
  if (num_tiles > kPlannedBlocks || params->num_blocks > kWholeBlocks) {
    for (const int candidate : {3, 4, 8}) {
      if (candidate > params->num_blocks) continue;
      if (cost_of(rest, num_tiles, candidate) < cost_of(rest, num_tiles, slices)) {
        slices = candidate;
      }
    }
  }
  params->num_whole_tiles = slices == 1 ? num_tiles : num_tiles - rest;
  params->num_slices = slices;
}

// What a block needs, in clocks, fitted to one H200 (bench/results/h200/prefill_gemm.md): for a stage of 64 k, for putting aside or taking back the sums of a
// token, for the tail of tiles whose slices are shared out.
constexpr float kStageClocks = 240.0f;
constexpr float kStageTokenClocks = 3.8f;
constexpr float kSumTokenClocks = 18.0f;
constexpr float kShareClocks = 6000.0f;

/// Divides the rows into tiles of `tokens`: split tiles in turn for whole rounds, their slices shared out for the rest if that ends sooner. Returns about how long
/// the launch takes, in clocks.
float plan_tokens(int num_rows, int tokens, int num_tiles, int num_clusters, int num_blocks,
                  PrefillParams* params) {
  const int num_token_tiles = (num_rows + tokens - 1) / tokens;
  const int split_tiles = num_tiles - params->num_whole_tiles;
  const int num_whole = (params->num_whole_tiles + num_blocks - 1) / num_blocks * num_token_tiles;
  const int num_split = (split_tiles + num_blocks - 1) / num_blocks * num_token_tiles;
  const int slices = params->num_slices;
  const auto width = static_cast<float>(tokens);
  const auto parts = static_cast<float>(slices);
  const float tile_time =
      2.0f * static_cast<float>(params->num_blocks) * (kStageClocks + kStageTokenClocks * width);
  const float in_turn_time = tile_time + 2.0f * (parts - 1.0f) * kSumTokenClocks * width;
  const auto rounds_of = [&](int units) {
    return static_cast<float>((units + num_clusters - 1) / num_clusters);
  };
  const int left = (num_whole + num_split) % num_clusters;
  const int shared = left < num_split ? left : num_split;
  const float shared_time =
      rounds_of(shared * slices) * (tile_time / parts + kSumTokenClocks * width) + kShareClocks;
  const bool shares = slices > 1 && shared > 0 && shared * num_blocks * slices <= kSharedSlotsMax &&
                      2 * shared * num_blocks <= kGemmTickets &&
                      (left > shared || shared_time < in_turn_time);
  params->num_token_tiles = num_token_tiles;
  params->num_shared = shares ? shared : 0;
  params->num_in_turn = num_split - params->num_shared;
  params->num_units = params->num_shared * slices + params->num_in_turn + num_whole;
  const float full_time = num_whole >= params->num_in_turn ? tile_time : in_turn_time;
  return rounds_of(num_whole + params->num_in_turn) * full_time + (shares ? shared_time : 0.0f);
}

/// A kernel of one tile.
template <int kTokens, int kBlocks>
struct PrefillKernel {
  static constexpr int kSharedBytes = PrefillShape<kTokens, kBlocks>::kSharedBytes;

  static ChainedLaunch launch_of(int num_clusters) {
    return {dim3(static_cast<unsigned>(num_clusters * kBlocks)), kPrefillThreads, kSharedBytes,
            kBlocks};
  }

  /// Counts the clusters that run at once.
  static cudaError_t prepare(int num_multiprocessors, int* num_clusters) {
    *num_clusters = num_multiprocessors / kBlocks;
    if (kBlocks == 1) return cudaSuccess;
    return count_clusters<gemm_prefill_kernel<kTokens, kBlocks>>(launch_of(*num_clusters),
                                                                 num_clusters);
  }

  static cudaError_t launch(const Gemm& gemm, int num_tiles, int num_multiprocessors,
                            PrefillParams* params, cudaStream_t stream) {
    static int num_clusters = 0;  // asked once: launches are recorded, and devices alike
    static const cudaError_t status = prepare(num_multiprocessors, &num_clusters);
    if (status != cudaSuccess) return status;
    if (num_clusters < 1) return cudaErrorNotSupported;
    if (!encode_tokens(gemm, kTokens / kBlocks, &params->x)) return cudaErrorInvalidValue;
    plan_tokens(gemm.num_rows, kTokens, num_tiles, num_clusters, kBlocks, params);
    // Weights that are read once should not push out what is read again.
    params->weights_hint = params->num_token_tiles == 1 ? kEvictFirst : kEvictNormal;
    const int used = params->num_units < num_clusters ? params->num_units : num_clusters;
    return launch_chained<gemm_prefill_kernel<kTokens, kBlocks>>(launch_of(used), stream, *params);
  }
};

/// The tile that ends soonest.
PrefillTile choose_tile(int num_rows, int num_tiles, int num_multiprocessors,
                        PrefillParams* params) {
  PrefillTile best = {};
  float best_time = 0.0f;
  for (const int tokens : {32, 48, 64, 72, 88, 104, 128, 160, 176, 208, 256}) {
    const float time = plan_tokens(num_rows, tokens, num_tiles, num_multiprocessors, 1, params);
    if (best.tokens != 0 && time >= best_time) continue;
    best = {tokens, 1};
    best_time = time;
  }
  if (best.tokens == 256 && num_rows >= kClusterRows) best.blocks = 2;
  return best;
}

cudaError_t launch_tile(const Gemm& gemm, const PrefillTile* forced, cudaStream_t stream) {
  if (encode_tiled() == nullptr) return cudaErrorNotSupported;
  if (!well_formed(gemm) || gemm.num_in / kScaleBlock > kGemmPrefillBlocksMax) {
    return cudaErrorInvalidValue;
  }
  int num_multiprocessors = 0;
  const cudaError_t status = count_multiprocessors(&num_multiprocessors);
  if (status != cudaSuccess) return status;
  PrefillParams params;
  int num_tiles = 0;
  if (!fill_gemm(gemm, &params, &num_tiles)) return cudaErrorInvalidValue;
  split_tiles(num_tiles, &params);
  const PrefillTile tile =
      forced != nullptr ? *forced
                        : choose_tile(gemm.num_rows, num_tiles, num_multiprocessors, &params);
  switch (tile.tokens * 10 + tile.blocks) {
#define SLUICE_TILE(tokens, blocks)                                                             \
  case tokens * 10 + blocks:                                                                    \
    return PrefillKernel<tokens, blocks>::launch(gemm, num_tiles, num_multiprocessors, &params, \
                                                 stream)
    SLUICE_TILE(32, 1);
    SLUICE_TILE(48, 1);
    SLUICE_TILE(64, 1);
    SLUICE_TILE(72, 1);
    SLUICE_TILE(88, 1);
    SLUICE_TILE(104, 1);
    SLUICE_TILE(128, 1);
    SLUICE_TILE(160, 1);
    SLUICE_TILE(176, 1);
    SLUICE_TILE(208, 1);
    SLUICE_TILE(256, 1);
    SLUICE_TILE(256, 2);
#undef SLUICE_TILE
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_gemm_prefill(const Gemm& gemm, cudaStream_t stream) {
  return launch_tile(gemm, nullptr, stream);
}

cudaError_t launch_gemm_prefill_tile(const Gemm& gemm, const PrefillTile& tile,
                                     cudaStream_t stream) {
  return launch_tile(gemm, &tile, stream);
}

}  // namespace sluice::cuda
