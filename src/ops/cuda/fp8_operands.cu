// Implements fp8_operands.h.
#include <cuda_fp16.h>

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/fp8_quantise.cuh"
#include "ops/cuda/norm_share.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/skinny.cuh"

namespace sluice::cuda {
namespace {

/// Pairs of a part that a warp keeps in registers; the widest row that can be normed has no more.
constexpr int kPairsAtOnce = kNormedColumnsMax / kScaleBlock / kNumParts;

constexpr int kNormBlocks = 4;         // of a multiprocessor, for the latency of memory
constexpr int kRequantisedAtOnce = 6;  // the 27B: 48 blocks a row, 8 warps
constexpr int kHalfWarp = kWarp / 2;
constexpr int kHalfWarps = kSkinnyThreads / kHalfWarp;
constexpr int kGroupsAtOnce = 4;
constexpr int kGroupsOfBlock = kHalfWarps * kGroupsAtOnce;

/// Largest |value| of 128, of which each lane has two pairs; NaN counts as the largest.
__device__ __forceinline__ float largest(uint2 pairs) {
  const uint32_t both = __vmaxu2(pairs.x & 0x7fff7fffu, pairs.y & 0x7fff7fffu);
  const uint32_t bits = __reduce_max_sync(0xffffffffu, max(both & 0xffffu, both >> 16));
  return widen(bf16{static_cast<uint16_t>(bits)});
}

/// The same of half a warp, of which each lane has four pairs.
__device__ __forceinline__ float largest_of_half(uint4 pairs) {
  constexpr uint32_t kSizes = 0x7fff7fffu;
  uint32_t both = __vmaxu2(__vmaxu2(pairs.x & kSizes, pairs.y & kSizes),
                           __vmaxu2(pairs.z & kSizes, pairs.w & kSizes));
#pragma unroll
  for (int step = kHalfWarp / 2; step > 0; step /= 2) {
    both = __vmaxu2(both, __shfl_xor_sync(0xffffffffu, both, step));
  }
  return widen(bf16{static_cast<uint16_t>(max(both & 0xffffu, both >> 16))});
}

/// Four values of a row, from k on, as f16 operands. Was one too large?
__device__ __forceinline__ bool store_f16(uint2 pairs, uint16_t* row, int k, bool in_order) {
  const uint2 halves = make_uint2(operands_of(pairs.x), operands_of(pairs.y));
  if (in_order) {
    *reinterpret_cast<uint2*>(row + k) = halves;
  } else {
    *reinterpret_cast<uint32_t*>(row + operand_place(k)) = halves.x;
    *reinterpret_cast<uint32_t*>(row + operand_place(k + 2)) = halves.y;
  }
  return is_out_of_range(halves.x) || is_out_of_range(halves.y);
}

/// Scales of kCount groups of 128, one in each of the first lanes: so their divisions are made once.
template <int kCount>
struct LaneScale {
  float max;
  Fp8Scale mine;
  __device__ __forceinline__ explicit LaneScale(const float (&max)[kCount])
      : max(pick(max)), mine(pick(max)) {}
  __device__ __forceinline__ static float pick(const float (&max)[kCount]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float own = 0.0f;
#pragma unroll
    for (int j = 0; j < kCount; ++j) own = lane == j ? max[j] : own;
    return own;
  }
  __device__ __forceinline__ float inverse(int j) const {
    return __shfl_sync(0xffffffffu, mine.inverse, j);
  }
};

/// A block a row, shared out as operands.cu shares it: the normed values have the same bits.
__global__ void __launch_bounds__(kSkinnyThreads, kNormBlocks)
    fp8_norm_kernel(const Fp8OperandsArgs args) {
  __shared__ float squares[kNumParts];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Part part = part_of_warp(args.num_cols / kScaleBlock);
  const int begin = part.first * kScaleBlock;
  pdl_launch();
  pdl_wait();
  const auto m = static_cast<int64_t>(blockIdx.x);
  RowShare<kPairsAtOnce> row;
  row.load(args.values + m * args.stride + begin, part.count);
  NormWeights<kPairsAtOnce> weights;
  weights.load(args.norm_weight + begin, part.count);
  const float own = row.sum_of_squares();
  if (lane == 0) squares[warp] = own;
  __syncthreads();
  row.norm(inverse_rms(squares, args.num_cols, args.eps), weights.w);
  float max[kPairsAtOnce];
#pragma unroll
  for (int j = 0; j < kPairsAtOnce; ++j) max[j] = largest(row.values[j]);
  const LaneScale<kPairsAtOnce> scale(max);
  bool is_far = false;
  if (lane < part.count) {
    args.to.scales[(part.first + lane) * args.to.scale_stride + m] = scale.mine.stored;
    is_far = !(scale.max < INFINITY);
  }
  uint8_t* to = args.to.values + m * args.to.stride + begin + fp8_operand_place(4 * lane);
#pragma unroll
  for (int j = 0; j < kPairsAtOnce; ++j) {
    if (j >= part.count) break;
    const uint2 pairs = row.values[j];
    *reinterpret_cast<uint32_t*>(to + j * kScaleBlock) =
        quantise_quad(pairs.x, pairs.y, scale.inverse(j));
    const int64_t at = m * args.out_stride + begin + j * kScaleBlock;
    if (args.normed != nullptr) {
      *reinterpret_cast<uint2*>(args.normed + at + 4 * lane) = pairs;
    }
    if (args.f16_operands == nullptr) continue;
    is_far |= store_f16(pairs, args.f16_operands + at, 4 * lane, args.f16_in_order);
  }
  if (is_far) raise_flag(args.range_flag);
}

/// Half a warp a group of 128 columns, kGroupsAtOnce of them one behind the other.
__global__ void __launch_bounds__(kSkinnyThreads) fp8_plain_kernel(const Fp8OperandsArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int half_lane = lane % kHalfWarp;
  const int num_blocks = args.num_cols / kScaleBlock;
  const int num_groups = args.num_rows * num_blocks;
  const int first =
      static_cast<int>(blockIdx.x) * kGroupsOfBlock + static_cast<int>(threadIdx.x) / kHalfWarp;
  pdl_launch();
  pdl_wait();
  uint4 values[kGroupsAtOnce];
#pragma unroll
  for (int j = 0; j < kGroupsAtOnce; ++j) {
    const int group = first + j * kHalfWarps;
    const int m = group / num_blocks;
    values[j] = make_uint4(0u, 0u, 0u, 0u);
    if (group < num_groups) {
      values[j] = __ldcg(reinterpret_cast<const uint4*>(
          args.values + m * args.stride + (group - m * num_blocks) * kScaleBlock + 8 * half_lane));
    }
  }
  float own_max = 0.0f;  // of group half_lane % kGroupsAtOnce
#pragma unroll
  for (int j = 0; j < kGroupsAtOnce; ++j) {
    const float max = largest_of_half(values[j]);
    own_max = half_lane % kGroupsAtOnce == j ? max : own_max;
  }
  const Fp8Scale scale(own_max);
  bool is_far = !(own_max < INFINITY);
#pragma unroll
  for (int j = 0; j < kGroupsAtOnce; ++j) {
    const float inverse = __shfl_sync(0xffffffffu, scale.inverse, lane / kHalfWarp * kHalfWarp + j);
    const int group = first + j * kHalfWarps;
    const int m = group / num_blocks;
    const int block = group - m * num_blocks;
    if (group >= num_groups) continue;  // not break: the other half may have more to do
    uint8_t* to = args.to.values + m * args.to.stride + block * kScaleBlock;
    const uint4 v = values[j];
    *reinterpret_cast<uint2*>(to + fp8_operand_place(8 * half_lane)) =
        make_uint2(quantise_quad(v.x, v.y, inverse), quantise_quad(v.z, v.w, inverse));
    if (half_lane == j) args.to.scales[block * args.to.scale_stride + m] = scale.stored;
    if (args.f16_operands == nullptr) continue;
    uint16_t* f16 = args.f16_operands + m * args.out_stride + block * kScaleBlock;
    is_far |= store_f16(make_uint2(v.x, v.y), f16, 8 * half_lane, args.f16_in_order);
    is_far |= store_f16(make_uint2(v.z, v.w), f16, 8 * half_lane + 4, args.f16_in_order);
  }
  if (is_far) raise_flag(args.range_flag);
}

/// Two f16 operands as the bf16 values that they stand for.
__device__ __forceinline__ uint32_t values_of(uint32_t operands) {
  constexpr float kUp = 1 << kActivationShift;
  const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&operands));
  return __float_as_uint(pair.x * kUp) >> 16 | (__float_as_uint(pair.y * kUp) & 0xffff0000u);
}

/// A block a row; a warp has every eighth 128 columns, kRequantisedAtOnce of them in flight, and a lane the four operands of each that lie side by side as e4m3.
__global__ void __launch_bounds__(kSkinnyThreads)
    fp8_requantise_kernel(const Fp8RequantiseArgs args) {
  constexpr int kWarps = kSkinnyThreads / kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int step = lane % 16 / 4;
  const int t = lane % 4;
  const int from_place = lane / 16 * kPackBlock + 16 * step + 2 * t;
  const int to_place = lane / 16 * kPackBlock + 16 * t + step / 2 * 8 + step % 2 * 4;
  const int num_blocks = args.num_cols / kScaleBlock;
  pdl_launch();
  pdl_wait();
  const auto m = static_cast<int64_t>(blockIdx.x);
  bool is_far = false;
  for (int first = warp; first < num_blocks; first += kWarps * kRequantisedAtOnce) {
    uint2 pairs[kRequantisedAtOnce];
#pragma unroll
    for (int j = 0; j < kRequantisedAtOnce; ++j) {
      const int block = first + j * kWarps;
      pairs[j] = make_uint2(0u, 0u);
      if (block >= num_blocks) continue;
      const uint16_t* from = args.operands + m * args.stride + block * kScaleBlock + from_place;
      pairs[j] = make_uint2(__ldcg(reinterpret_cast<const uint32_t*>(from)),
                            __ldcg(reinterpret_cast<const uint32_t*>(from + 8)));
    }
    float max[kRequantisedAtOnce];
#pragma unroll
    for (int j = 0; j < kRequantisedAtOnce; ++j) {
      pairs[j] = make_uint2(values_of(pairs[j].x), values_of(pairs[j].y));
      max[j] = largest(pairs[j]);
    }
    const LaneScale<kRequantisedAtOnce> scale(max);
    const int own = first + lane * kWarps;
    if (lane < kRequantisedAtOnce && own < num_blocks) {
      args.to.scales[own * args.to.scale_stride + m] = scale.mine.stored;
      is_far |= !(scale.max < INFINITY);
    }
    uint8_t* to = args.to.values + m * args.to.stride + to_place;
#pragma unroll
    for (int j = 0; j < kRequantisedAtOnce; ++j) {
      const uint32_t codes = quantise_quad(pairs[j].x, pairs[j].y, scale.inverse(j));
      const int block = first + j * kWarps;
      if (block < num_blocks) *reinterpret_cast<uint32_t*>(to + block * kScaleBlock) = codes;
    }
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
  if (args.num_rows < 1 || args.num_cols < kScaleBlock || args.num_cols % kScaleBlock != 0) {
    return cudaErrorInvalidValue;
  }
  if (args.norm_weight == nullptr) {
    if (args.normed != nullptr) return cudaErrorInvalidValue;
    const int64_t num_groups = int64_t{args.num_rows} * (args.num_cols / kScaleBlock);
    const auto num_blocks =
        static_cast<unsigned>((num_groups + kGroupsOfBlock - 1) / kGroupsOfBlock);
    return launch_chained<fp8_plain_kernel>({dim3(num_blocks), kSkinnyThreads}, stream, args);
  }
  if (args.num_cols > kNormedColumnsMax) return cudaErrorInvalidValue;
  return launch_chained<fp8_norm_kernel>(
      {dim3(static_cast<unsigned>(args.num_rows)), kSkinnyThreads}, stream, args);
}

}  // namespace sluice::cuda
