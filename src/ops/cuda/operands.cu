// Implements launch_operands of skinny.h: values, normed or not, as the projections' operands.
#include "ops/cuda/norm_share.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

/// Pairs of a part that a warp keeps in registers; wider rows are read a second time.
constexpr int kPairsAtOnce = kNormedColumnsMax / kScaleBlock / kNumParts;

/// A block a row.
__global__ void __launch_bounds__(kSkinnyThreads) operands_kernel(const OperandsArgs args) {
  __shared__ float squares[kNumParts];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Part part = part_of_warp(args.num_cols / kScaleBlock);
  const int64_t begin = part.first * kScaleBlock;
  const bool has_norm = args.norm_weight != nullptr;
  pdl_launch();
  NormWeights<kPairsAtOnce> weights = {};
  if (has_norm) weights.load(args.norm_weight + begin, part.count);
  pdl_wait();
  const auto block = static_cast<int>(blockIdx.x);
  const int64_t from = args.row_list == nullptr ? block : args.row_list[block];
  bool is_far = false;
  for (int first = 0; first < part.count || first == 0; first += kPairsAtOnce) {
    const int count = part.count - first;
    RowShare<kPairsAtOnce> row;
    const int64_t offset = begin + first * kScaleBlock;
    row.load(args.values + from * args.stride + offset, from < 0 ? 0 : count);
    if (has_norm) {
      const float own = row.sum_of_squares();
      if (lane == 0) squares[warp] = own;
      __syncthreads();
      row.norm(inverse_rms(squares, args.num_cols, args.eps), weights.w);
    }
    const int64_t to = blockIdx.x * args.out_stride + offset + 4 * lane;
#pragma unroll
    for (int j = 0; j < kPairsAtOnce; ++j) {
      if (j >= count) break;
      if (args.normed != nullptr) {
        *reinterpret_cast<uint2*>(args.normed + to + j * kScaleBlock) = row.values[j];
      }
      if (args.operands == nullptr) continue;
      const uint2 pairs = make_uint2(operands_of(row.values[j].x), operands_of(row.values[j].y));
      is_far |= is_out_of_range(pairs.x) | is_out_of_range(pairs.y);
      uint16_t* to_row = args.operands + blockIdx.x * args.out_stride;
      const int k = static_cast<int>(offset) + j * kScaleBlock + 4 * lane;
      *reinterpret_cast<uint32_t*>(to_row + operand_place(k)) = pairs.x;
      *reinterpret_cast<uint32_t*>(to_row + operand_place(k + 2)) = pairs.y;
    }
  }
  if (is_far) raise_flag(args.range_flag);
}

/// The same for normed operands alone, which wait between two projections: as little code as will do, for it is cold each time. A block a row.
__global__ void __launch_bounds__(kSkinnyThreads) norm_kernel(const OperandsArgs args) {
  __shared__ float squares[kNumParts];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Part part = part_of_warp(args.num_cols / kScaleBlock);
  const int begin = part.first * kScaleBlock;
  pdl_launch();
  NormWeights<kPairsAtOnce> weights = {};
  weights.load(args.norm_weight + begin, part.count);
  const bf16* from = args.values + blockIdx.x * args.stride + begin;
  uint16_t* to = args.operands + blockIdx.x * args.out_stride + begin;
  uint16_t* to_low = to + operand_place(4 * lane);
  uint16_t* to_high = to + operand_place(4 * lane + 2);
  pdl_wait();
  RowShare<kPairsAtOnce> row;
  row.load(from, part.count);
  const float own = row.sum_of_squares();
  if (lane == 0) squares[warp] = own;
  __syncthreads();
  const float inverse = inverse_rms(squares, args.num_cols, args.eps);
  bool is_far = false;
#pragma unroll 1
  for (int j = 0; j < part.count; ++j) {  // the values at hand are always the first
    row.norm_first(inverse, weights.w[0]);
    const uint2 pairs = make_uint2(operands_of(row.values[0].x), operands_of(row.values[0].y));
    is_far |= is_out_of_range(pairs.x) | is_out_of_range(pairs.y);
    *reinterpret_cast<uint32_t*>(to_low + j * kScaleBlock) = pairs.x;
    *reinterpret_cast<uint32_t*>(to_high + j * kScaleBlock) = pairs.y;
#pragma unroll
    for (int i = 0; i + 1 < kPairsAtOnce; ++i) {
      row.values[i] = row.values[i + 1];
      weights.w[i] = weights.w[i + 1];
    }
  }
  if (is_far) raise_flag(args.range_flag);
}

}  // namespace

cudaError_t launch_operands(const OperandsArgs& args, cudaStream_t stream) {
  const bool has_norm = args.norm_weight != nullptr;
  if (args.num_cols % kScaleBlock != 0 || (has_norm && args.num_cols > kNormedColumnsMax)) {
    return cudaErrorInvalidValue;
  }
  const dim3 grid(static_cast<unsigned>(args.num_rows));
  if (has_norm && args.row_list == nullptr && args.normed == nullptr && args.operands != nullptr) {
    return launch_chained<norm_kernel>({grid, kSkinnyThreads}, stream, args);
  }
  return launch_chained<operands_kernel>({grid, kSkinnyThreads}, stream, args);
}

}  // namespace sluice::cuda
