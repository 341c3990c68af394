// Row-major weights into the layout of packed.h. Run once at load, at many times the speed of the copy ahead of it.
#include <cuda_fp16.h>

#include "ops/cuda/math.cuh"
#include "ops/cuda/pack_kernels.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
static_assert(kWarps == kRowGroup);  // a warp finds a row's factor
constexpr int kHalfBlock = kPackBlock / 2;
constexpr int kFactorExponentMax = 120;  // 2^-120 is a normal fp32

/// What a lane has of a block: row `lane / 4`, values from k = 8 (lane % 4) of each half.
struct LanePlace {
  int row, k;
  __device__ LanePlace()
      : row(static_cast<int>(threadIdx.x) % kWarp / kLanesOfRow),
        k(static_cast<int>(threadIdx.x) % kLanesOfRow * kLaneValues) {}
};

/// A block a row group; its warps share the blocks of K.
__global__ void pack_fp8_kernel(PackRows rows) {
  const LanePlace lane;
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kRowGroup + lane.row;
  const int64_t num_blocks = rows.num_in / kPackBlock;
  const uint8_t* from = static_cast<const uint8_t*>(rows.from) + n * rows.num_in + lane.k;
  auto* to = reinterpret_cast<uint4*>(rows.to + blockIdx.x * num_blocks * kFp8BlockBytes);
  for (int64_t b = threadIdx.x / kWarp; b < num_blocks; b += kWarps) {
    uint2 low = {0, 0};
    uint2 high = {0, 0};
    if (n < rows.num_rows) {
      low = *reinterpret_cast<const uint2*>(from + b * kPackBlock);
      high = *reinterpret_cast<const uint2*>(from + b * kPackBlock + kHalfBlock);
    }
    to[b * kWarp + threadIdx.x % kWarp] = {low.x, low.y, high.x, high.y};
  }
}

/// Exponent e so that the row's largest finite value times 2^e is in [2^14, 2^15); 0 for a row of zeros. In every lane.
__device__ int row_exponent(const bf16* row, int64_t num_in) {
  constexpr int kTarget = 14;
  float max = 0.0f;
  for (int64_t k = threadIdx.x % kWarp; k < num_in; k += kWarp) {
    const float x = fabsf(widen(row[k]));
    if (x < INFINITY) max = fmaxf(max, x);
  }
  max = warp_reduce(max, Max());
  return max == 0.0f ? 0 : min(kTarget - ilogbf(max), kFactorExponentMax);
}

__global__ void pack_bf16_kernel(PackRows rows) {
  __shared__ float factors[kRowGroup];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRowGroup;
  const int64_t num_blocks = rows.num_in / kPackBlock;
  const auto* values = static_cast<const bf16*>(rows.from);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (first + warp < rows.num_rows) {
    const int exponent = row_exponent(values + (first + warp) * rows.num_in, rows.num_in);
    if (threadIdx.x % kWarp == 0) {
      factors[warp] = ldexpf(1.0f, exponent);
      rows.row_factors[first + warp] = ldexpf(1.0f, kActivationShift - exponent);
    }
  }
  __syncthreads();
  const LanePlace lane;
  const bool is_real = first + lane.row < rows.num_rows;
  const bf16* from = values + (first + lane.row) * rows.num_in + lane.k;
  const float factor = factors[lane.row];
  auto* to = reinterpret_cast<uint4*>(rows.to + blockIdx.x * num_blocks * kF16BlockBytes);
  // An iteration is half a block of every row.
  for (int64_t h = warp; h < 2 * num_blocks; h += kWarps) {
    uint4 out = {0, 0, 0, 0};
    if (is_real) {
      const uint4 in = *reinterpret_cast<const uint4*>(from + h * kHalfBlock);
      const auto* raw = reinterpret_cast<const bf16*>(&in);
      auto* half = reinterpret_cast<__half*>(&out);
      for (int i = 0; i < kLaneValues; ++i) half[i] = __float2half_rn(widen(raw[i]) * factor);
    }
    to[h * kWarp + threadIdx.x % kWarp] = out;
  }
}

unsigned num_groups(const PackRows& rows) {
  return static_cast<unsigned>((rows.num_rows + kRowGroup - 1) / kRowGroup);
}

}  // namespace

cudaError_t launch_pack_fp8(const PackRows& rows, cudaStream_t stream) {
  pack_fp8_kernel<<<num_groups(rows), kWarps * kWarp, 0, stream>>>(rows);
  return cudaGetLastError();
}

cudaError_t launch_pack_bf16(const PackRows& rows, cudaStream_t stream) {
  pack_bf16_kernel<<<num_groups(rows), kWarps * kWarp, 0, stream>>>(rows);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
