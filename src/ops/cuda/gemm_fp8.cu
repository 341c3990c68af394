// Implements ops/cuda/gemm_fp8.h. Test: tests/gpu gemm_fp8. Log: bench/results/h200/prefill_fp8.md.
#include <algorithm>
#include <cmath>

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gemm_fp8_kernel.cuh"
#include "ops/cuda/tensor_map.h"

namespace sluice::cuda {
namespace {

/// What a tensor map is made of; rank 2 or 4, innermost first. Rows beyond the end arrive as zeros.
struct Tiled {
  CUtensorMapDataType type;
  int rank;
  const void* data;
  cuuint64_t dims[4];
  cuuint64_t strides[3];
  cuuint32_t box[4];
  CUtensorMapSwizzle swizzle;
};

bool encode(const Tiled& tiled, CUtensorMap* map) {
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encode_tiled()(map, tiled.type, static_cast<cuuint32_t>(tiled.rank),
                        const_cast<void*>(tiled.data), tiled.dims, tiled.strides, tiled.box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, tiled.swizzle,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool encode_tokens(const GemmFp8& gemm, int tokens, CUtensorMap* map) {
  return encode({CU_TENSOR_MAP_DATA_TYPE_UINT8,
                 2,
                 gemm.x.values,
                 {static_cast<cuuint64_t>(gemm.num_in), static_cast<cuuint64_t>(gemm.num_rows)},
                 {static_cast<cuuint64_t>(gemm.x.stride)},
                 {kScaleBlock, static_cast<cuuint32_t>(tokens)},
                 CU_TENSOR_MAP_SWIZZLE_128B},
                map);
}

bool encode_scales(const GemmFp8& gemm, int tokens, CUtensorMap* map) {
  return encode(
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
       2,
       gemm.x.scales,
       {static_cast<cuuint64_t>(gemm.num_rows), static_cast<cuuint64_t>(gemm.num_in / kScaleBlock)},
       {static_cast<cuuint64_t>(gemm.x.scale_stride) * 4},
       {static_cast<cuuint32_t>(tokens), 1},
       CU_TENSOR_MAP_SWIZZLE_NONE},
      map);
}

bool encode_weights(const PackedWeight& weight, int copy_groups, CUtensorMap* map) {
  const auto num_blocks = static_cast<cuuint64_t>(weight.num_in / kPackBlock);
  const auto num_groups = static_cast<cuuint64_t>((weight.num_out + kRowGroup - 1) / kRowGroup);
  return encode(
      {CU_TENSOR_MAP_DATA_TYPE_UINT8,
       4,
       weight.data,
       {kPackBlock, kRowGroup, num_blocks, num_groups},
       {kPackBlock, kFp8BlockBytes, num_blocks * kFp8BlockBytes},
       {kPackBlock, kRowGroup, kScaleBlock / kPackBlock, static_cast<cuuint32_t>(copy_groups)},
       CU_TENSOR_MAP_SWIZZLE_64B},
      map);
}

bool encode_exact_tokens(const GemmFp8& gemm, int tokens, CUtensorMap* map) {
  return encode({CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                 2,
                 gemm.exact_x,
                 {static_cast<cuuint64_t>(gemm.num_in), static_cast<cuuint64_t>(gemm.num_rows)},
                 {static_cast<cuuint64_t>(gemm.exact_stride) * 2},
                 {kPackBlock, static_cast<cuuint32_t>(tokens)},
                 CU_TENSOR_MAP_SWIZZLE_128B},
                map);
}

/// A packed f16 block is two halves as an FP8 block is one: 8 rows of 64 bytes (packed.h).
bool encode_side_weights(const PackedWeight& weight, CUtensorMap* map) {
  const auto num_halves = static_cast<cuuint64_t>(2 * weight.num_in / kPackBlock);
  const auto num_groups = static_cast<cuuint64_t>((weight.num_out + kRowGroup - 1) / kRowGroup);
  return encode({CU_TENSOR_MAP_DATA_TYPE_UINT8,
                 4,
                 weight.data,
                 {kPackBlock, kRowGroup, num_halves, num_groups},
                 {kPackBlock, kFp8BlockBytes, num_halves * kFp8BlockBytes},
                 {kPackBlock, kRowGroup, 2, kFp8SideRows / kRowGroup},
                 CU_TENSOR_MAP_SWIZZLE_64B},
                map);
}

/// Segments in FP8, which come first.
int num_fp8_segments(const GemmFp8& gemm) {
  int count = 0;
  while (count < gemm.num_segments && gemm.segments[count].weight.scales != nullptr) ++count;
  return count;
}

/// Token tiles whose operands stay in L2 while every weight passes by.
int token_band(const GemmFp8& gemm, int tile_tokens, int num_token_tiles) {
  constexpr int64_t kKeptBytes = 36ll << 20;
  const int64_t kept = kKeptBytes / (static_cast<int64_t>(tile_tokens) * gemm.num_in);
  if (kept >= num_token_tiles) return num_token_tiles;
  // As many bands as that takes, all of the same size.
  const auto most = static_cast<int>(kept < 1 ? 1 : kept);
  const int num_bands = (num_token_tiles + most - 1) / most;
  return (num_token_tiles + num_bands - 1) / num_bands;
}

int ceil_div(int count, int size) {
  return (count + size - 1) / size;
}

/// The clusters that tiles are split for, whatever they run on: the split is part of the order of sums.
constexpr int kPlannedClusters = 66;
/// How many tiles of gate and up are not summed in whole rounds, and so in slices: few, of many; else 0.
int num_tail_tiles(const GemmFp8& gemm) {
  if (gemm.epilogue != GemmEpilogue::kGateUp || gemm.num_in / kScaleBlock < kFp8Slices) return 0;
  const int num_tiles = ceil_div(gemm.segments[0].weight.num_out, kScaleBlock);
  const int rest = num_tiles % kPlannedClusters;
  return num_tiles > kPlannedClusters && rest * kFp8Slices <= kPlannedClusters ? rest : 0;
}

/// What a form of tiles needs of the launch's plan.
struct Plan {
  int num_tiles, num_whole_tiles, num_token_tiles, num_shared, num_in_turn, num_units;
  /// About how long it takes: weight rows that a cluster passes one behind the other.
  float cost;
};

/// Split tiles in turn for whole rounds, their slices shared out for the rest if that ends sooner.
template <typename Shape>
Plan plan_of(const GemmFp8& gemm, int num_clusters) {
  constexpr int kTokens = kFp8TileTokens * Shape::kCluster;
  constexpr int64_t kSlotBytes = int64_t{kFp8TileTokens} * Shape::kPieces * Shape::kRows * 4;
  // Measured (prefill_fp8.md) at 192 rows; estimated at 128 from what shared memory must carry.
  constexpr float kHandicap = Shape::kTileRows == 256   ? 1.0f
                              : Shape::kTileRows == 192 ? 1.04f
                                                        : 1.15f;
  // 128s of K that joining slices costs; estimated.
  constexpr float kJoinBlocks = 8.0f;
  const int num_fp8 = num_fp8_segments(gemm);
  Plan plan = {};
  for (int i = 0; i < (Shape::kPair ? 1 : num_fp8); ++i) {
    plan.num_tiles += ceil_div(gemm.segments[i].weight.num_out, Shape::kTileRows);
  }
  plan.num_token_tiles = ceil_div(gemm.num_rows, kTokens);
  const int num_split_tiles = Shape::kSplit ? num_tail_tiles(gemm) : 0;
  plan.num_whole_tiles = plan.num_tiles - num_split_tiles;
  const int num_sides = (gemm.num_segments - (Shape::kPair ? gemm.num_segments : num_fp8)) *
                        plan.num_token_tiles;  // like tiles
  const int num_split = num_split_tiles * plan.num_token_tiles;
  const int num_whole = plan.num_whole_tiles * plan.num_token_tiles + num_sides;
  const auto rounds = static_cast<float>(ceil_div(num_whole + num_split, num_clusters));
  const int shared = std::min((num_whole + num_split) % num_clusters, num_split);
  const auto shared_rounds =
      static_cast<float>(ceil_div(num_whole + num_split - shared, num_clusters)) +
      static_cast<float>(ceil_div(shared * kFp8Slices, num_clusters)) /
          static_cast<float>(kFp8Slices) +
      kJoinBlocks * kScaleBlock / static_cast<float>(gemm.num_in);
  const int64_t num_slots =
      (int64_t{shared} * kFp8Slices + num_clusters) * int64_t{Shape::kCluster};
  const bool fits = num_slots * kSlotBytes <= kGemmFp8PartialBytes &&
                    2 * shared * Shape::kCluster <= kGemmTickets;
  const bool shares = shared > 0 && fits && shared_rounds < rounds;
  plan.num_shared = shares ? shared : 0;
  plan.num_in_turn = num_split - plan.num_shared;
  plan.num_units = plan.num_shared * kFp8Slices + plan.num_in_turn + num_whole;
  plan.cost = (shares ? shared_rounds : rounds) * Shape::kTileRows * kHandicap;
  return plan;
}

template <typename Shape>
bool fill_params(const GemmFp8& gemm, const Plan& plan, Fp8Params* params) {
  const int num_fp8 = num_fp8_segments(gemm);
  int num_tiles = 0;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const GemmSegment& segment = gemm.segments[i];
    const bool is_side = i >= num_fp8;
    const PackedWeight& weight = segment.weight;
    if (!(is_side ? encode_side_weights(weight, &params->weights[i])
                  : encode_weights(weight, Shape::kCopyGroups, &params->weights[i]))) {
      return false;
    }
    params->segments[i] = {is_side ? weight.row_factors : weight.scales, segment.out,
                           segment.out_stride, weight.num_out, num_tiles};
    num_tiles += ceil_div(weight.num_out, Shape::kTileRows);
  }
  params->num_segments = Shape::kPair ? 1 : num_fp8;
  params->num_rows = gemm.num_rows;
  // In steps of eight, which the swizzle repeats.
  params->tile_tokens =
      ceil_div(ceil_div(gemm.num_rows, plan.num_token_tiles * Shape::kCluster), 8) * 8;
  params->num_blocks = gemm.num_in / kScaleBlock;
  params->num_side_units = (gemm.num_segments - num_fp8) * plan.num_token_tiles;
  params->num_tiles = plan.num_tiles;
  params->num_whole_tiles = plan.num_whole_tiles;
  params->num_shared = plan.num_shared;
  params->num_in_turn = plan.num_in_turn;
  const int num_behind = plan.num_units - plan.num_shared * kFp8Slices;
  params->turn_stride = std::max(1, num_behind / std::max(1, plan.num_in_turn));
  params->num_token_tiles = plan.num_token_tiles;
  params->num_units = plan.num_units;
  params->band = token_band(gemm, kFp8TileTokens * Shape::kCluster, plan.num_token_tiles);
  params->partials = gemm.workspace.partials;
  params->tickets = gemm.workspace.tickets;
  params->epilogue = gemm.epilogue;
  params->operand = gemm.operand;
  params->range_flag = gemm.range_flag;
  if (Shape::kSide && !encode_exact_tokens(gemm, params->tile_tokens, &params->exact_x))
    return false;
  return encode_tokens(gemm, params->tile_tokens, &params->x) &&
         encode_scales(gemm, params->tile_tokens, &params->x_scales);
}

template <typename Shape>
ChainedLaunch launch_of(int num_clusters) {
  return {dim3(static_cast<unsigned>(num_clusters * Shape::kCluster)), kFp8Threads,
          Shape::kSharedBytes, Shape::kCluster};
}

/// Clusters that fit on the device at once; 0 if that cannot be found out.
template <typename Shape>
int clusters_at_once() {
  static const int found = [] {
    int count = 0;
    const cudaError_t status = count_clusters<gemm_fp8_kernel<Shape>>(launch_of<Shape>(1), &count);
    return status == cudaSuccess ? count : 0;
  }();
  return found;
}

template <typename Shape>
float cost(const GemmFp8& gemm) {
  const int num_clusters = clusters_at_once<Shape>();
  return num_clusters == 0 ? INFINITY : plan_of<Shape>(gemm, num_clusters).cost;
}

template <typename Shape>
cudaError_t launch(const GemmFp8& gemm, cudaStream_t stream) {
  const int num_clusters = clusters_at_once<Shape>();
  if (num_clusters == 0) return cudaErrorInvalidValue;
  const Plan plan = plan_of<Shape>(gemm, num_clusters);
  Fp8Params params;
  if (!fill_params<Shape>(gemm, plan, &params)) return cudaErrorInvalidValue;
  const int used = std::min(plan.num_units, num_clusters);
  return launch_chained<gemm_fp8_kernel<Shape>>(launch_of<Shape>(used), stream, params);
}

/// In whichever form ends soonest; the bits are the same.
template <typename Wide, typename Middle, typename Narrow>
cudaError_t launch_soonest(const GemmFp8& gemm, cudaStream_t stream) {
  const float wide = cost<Wide>(gemm);
  const float middle = cost<Middle>(gemm);
  const float narrow = cost<Narrow>(gemm);
  if (wide <= middle && wide <= narrow) return launch<Wide>(gemm, stream);
  return middle <= narrow ? launch<Middle>(gemm, stream) : launch<Narrow>(gemm, stream);
}

template <Fp8Beside kBeside>
cudaError_t launch_stores(const GemmFp8& gemm, cudaStream_t stream) {
  if (gemm.num_rows <= kFp8TileTokens) {
    return launch<Fp8Shape<128, 1, 1, false, kBeside>>(gemm, stream);
  }
  return launch_soonest<Fp8Shape<128, 2, 2, false, kBeside>, Fp8Shape<192, 1, 2, false, kBeside>,
                        Fp8Shape<128, 1, 2, false, kBeside>>(gemm, stream);
}

template <Fp8Beside kBeside>
cudaError_t launch_pairs(const GemmFp8& gemm, cudaStream_t stream) {
  return gemm.num_rows <= kFp8TileTokens ? launch<Fp8Shape<128, 2, 1, true, kBeside>>(gemm, stream)
                                         : launch<Fp8Shape<128, 2, 2, true, kBeside>>(gemm, stream);
}

bool is_aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

bool well_formed(const Fp8Operands& operands, int num_rows) {
  return is_aligned(operands.values) && is_aligned(operands.scales) && operands.stride % 16 == 0 &&
         operands.scale_stride % 4 == 0 && operands.scale_stride >= num_rows;
}

bool is_side(const GemmFp8& gemm, int i) {
  const GemmSegment& segment = gemm.segments[i];
  return i > 0 && segment.weight.scales == nullptr && gemm.epilogue == GemmEpilogue::kStore &&
         segment.weight.row_factors != nullptr && segment.weight.num_out <= kFp8SideRows &&
         segment.weight.num_out % 2 == 0 && segment.out_stride % 2 == 0 &&
         gemm.exact_x != nullptr && is_aligned(gemm.exact_x) && gemm.exact_stride % 8 == 0;
}

bool well_formed(const GemmFp8& gemm) {
  if (gemm.num_rows < 1 || gemm.num_in < kScaleBlock || gemm.num_in % kScaleBlock != 0)
    return false;
  if (gemm.num_segments < 1 || gemm.num_segments > kGemmSegments) return false;
  if (!well_formed(gemm.x, gemm.num_rows)) return false;
  const bool is_pair = gemm.epilogue == GemmEpilogue::kGateUp;
  const bool is_fp32 = gemm.epilogue == GemmEpilogue::kStoreFp32;
  for (int i = 0; i < gemm.num_segments; ++i) {
    const GemmSegment& segment = gemm.segments[i];
    if (segment.weight.num_in != gemm.num_in) return false;
    if (i >= num_fp8_segments(gemm)) {
      if (!is_side(gemm, i)) return false;
      continue;
    }
    if (is_pair || is_fp32) continue;
    if (!is_aligned(segment.out) || segment.out_stride % 8 != 0 ||
        segment.weight.num_out % kRowGroup != 0) {
      return false;
    }
  }
  if (!is_pair) return true;
  const int num_out = gemm.segments[0].weight.num_out;
  return gemm.num_segments == 2 && num_out == gemm.segments[1].weight.num_out &&
         num_out % kScaleBlock == 0 && well_formed(gemm.operand, gemm.num_rows);
}

}  // namespace

cudaError_t launch_gemm_fp8(const GemmFp8& gemm, cudaStream_t stream) {
  if (!well_formed(gemm) || encode_tiled() == nullptr) return cudaErrorInvalidValue;
  const bool is_split = num_tail_tiles(gemm) > 0;
  if (is_split && (gemm.workspace.partials == nullptr || gemm.workspace.tickets == nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (gemm.epilogue == GemmEpilogue::kGateUp) {
    return is_split ? launch_pairs<Fp8Beside::kSlices>(gemm, stream)
                    : launch_pairs<Fp8Beside::kNothing>(gemm, stream);
  }
  return num_fp8_segments(gemm) < gemm.num_segments
             ? launch_stores<Fp8Beside::kSides>(gemm, stream)
             : launch_stores<Fp8Beside::kNothing>(gemm, stream);
}

}  // namespace sluice::cuda
