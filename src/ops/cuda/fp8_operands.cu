// Implements fp8_operands.h.
#include <cuda_fp16.h>

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/fp8_quantise.cuh"
#include "ops/cuda/norm_share.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

/// Pairs of a part that a warp keeps in registers; wider rows are read a second time.
constexpr int kPairsAtOnce = kNormedColumnsMax / kScaleBlock / kNumParts;

/// Largest |value| of 128, of which each lane has two pairs; NaN counts as the largest.
__device__ __forceinline__ float largest(uint2 pairs) {
  const uint32_t both = __vmaxu2(pairs.x & 0x7fff7fffu, pairs.y & 0x7fff7fffu);
  const uint32_t bits = __reduce_max_sync(0xffffffffu, max(both & 0xffffu, both >> 16));
  return widen(bf16{static_cast<uint16_t>(bits)});
}

/// A block a row, shared out as operands.cu shares it: the normed values have the same bits.
__global__ void __launch_bounds__(kSkinnyThreads) fp8_operands_kernel(const Fp8OperandsArgs args) {
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
  const auto m = static_cast<int64_t>(blockIdx.x);
  bool is_far = false;
  for (int first = 0; first < part.count || first == 0; first += kPairsAtOnce) {
    const int count = part.count - first;
    RowShare<kPairsAtOnce> row;
    const int64_t offset = begin + first * kScaleBlock;
    row.load(args.values + m * args.stride + offset, count);
    if (has_norm) {
      const float own = row.sum_of_squares();
      if (lane == 0) squares[warp] = own;
      __syncthreads();
      row.norm(inverse_rms(squares, args.num_cols, args.eps), weights.w);
    }
#pragma unroll
    for (int j = 0; j < kPairsAtOnce; ++j) {
      if (j >= count) break;
      const uint2 pairs = row.values[j];
      const int k = static_cast<int>(offset) + j * kScaleBlock + 4 * lane;
      const float max = largest(pairs);
      is_far |= !(max < INFINITY);
      const Fp8Scale scale(max);
      const uint32_t codes =
          scale.quantise(pairs.x) | static_cast<uint32_t>(scale.quantise(pairs.y)) << 16;
      *reinterpret_cast<uint32_t*>(args.to.values + m * args.to.stride + fp8_operand_place(k)) =
          codes;
      if (lane == 0) args.to.scales[k / kScaleBlock * args.to.scale_stride + m] = scale.stored;
      if (args.normed != nullptr) {
        *reinterpret_cast<uint2*>(args.normed + m * args.out_stride + k) = pairs;
      }
      if (args.f16_operands == nullptr) continue;
      const uint2 halves = make_uint2(operands_of(pairs.x), operands_of(pairs.y));
      is_far |= is_out_of_range(halves.x) | is_out_of_range(halves.y);
      uint16_t* to_row = args.f16_operands + m * args.out_stride;
      *reinterpret_cast<uint32_t*>(to_row + operand_place(k)) = halves.x;
      *reinterpret_cast<uint32_t*>(to_row + operand_place(k + 2)) = halves.y;
    }
  }
  if (is_far) raise_flag(args.range_flag);
}

/// Two f16 operands as the bf16 values that they stand for.
__device__ __forceinline__ uint32_t values_of(uint32_t operands) {
  constexpr float kUp = 1 << kActivationShift;
  const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&operands));
  return __float_as_uint(pair.x * kUp) >> 16 | (__float_as_uint(pair.y * kUp) & 0xffff0000u);
}

/// A warp takes 128 columns of a row at a time; a lane the four operands that lie side by side as e4m3.
__global__ void __launch_bounds__(kSkinnyThreads)
    fp8_requantise_kernel(const Fp8RequantiseArgs args) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int step = lane % 16 / 4;
  const int t = lane % 4;
  const int from_place = lane / 16 * kPackBlock + 16 * step + 2 * t;
  const int to_place = lane / 16 * kPackBlock + 16 * t + step / 2 * 8 + step % 2 * 4;
  pdl_launch();
  pdl_wait();
  const auto m = static_cast<int64_t>(blockIdx.x);
  const uint16_t* row = args.operands + m * args.stride;
  bool is_far = false;
  for (int block = warp; block < args.num_cols / kScaleBlock; block += kSkinnyThreads / kWarp) {
    const uint16_t* from = row + block * kScaleBlock + from_place;
    const uint2 pairs = make_uint2(values_of(*reinterpret_cast<const uint32_t*>(from)),
                                   values_of(*reinterpret_cast<const uint32_t*>(from + 8)));
    const float max = largest(pairs);
    is_far |= !(max < INFINITY);
    const Fp8Scale scale(max);
    const uint32_t codes = scale.quantise(pairs.x) | static_cast<uint32_t>(scale.quantise(pairs.y))
                                                         << 16;
    *reinterpret_cast<uint32_t*>(args.to.values + m * args.to.stride + block * kScaleBlock +
                                 to_place) = codes;
    if (lane == 0) args.to.scales[block * args.to.scale_stride + m] = scale.stored;
  }
  if (is_far) raise_flag(args.range_flag);
}

}  // namespace

cudaError_t launch_fp8_requantise(const Fp8RequantiseArgs& args, cudaStream_t stream) {
  if (args.num_rows < 1 || args.num_cols % kScaleBlock != 0) return cudaErrorInvalidValue;
  return launch_chained<fp8_requantise_kernel>(
      {dim3(static_cast<unsigned>(args.num_rows)), kSkinnyThreads}, stream, args);
}

cudaError_t launch_fp8_operands(const Fp8OperandsArgs& args, cudaStream_t stream) {
  const bool has_norm = args.norm_weight != nullptr;
  if (args.num_rows < 1 || args.num_cols % kScaleBlock != 0 ||
      (has_norm && args.num_cols > kNormedColumnsMax)) {
    return cudaErrorInvalidValue;
  }
  return launch_chained<fp8_operands_kernel>(
      {dim3(static_cast<unsigned>(args.num_rows)), kSkinnyThreads}, stream, args);
}

}  // namespace sluice::cuda
