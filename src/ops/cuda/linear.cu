// Implements ops/linear.h, plainly: a warp an output, its rows beside each other. The yardstick of the streaming kernels.
//
// Order of sums: a lane adds its own 16 values of each stretch in turn (FP8: one partial sum a stretch, times the block's scale),
// then the lanes by the fixed tree of warp_sum. It depends on K alone.
#include <cuda_fp8.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 8;  // of a block; more rows are more blocks
constexpr int kFp8Block = 128;
constexpr int kStretch = 16;  // values of K a lane takes at once: a divisor of the FP8 block

__device__ float widen_e4m3(uint8_t code) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(code, __NV_E4M3);
  return __half2float(*reinterpret_cast<const __half*>(&half));
}

/// kStretch weights from `k` on, and the factor of their products.
struct Stretch {
  float values[kStretch];
  float scale;
};

__device__ Stretch load_stretch(const Weight& w, int64_t n, int64_t k) {
  Stretch out;
  if (w.scales == nullptr) {
    const uint4* from =
        reinterpret_cast<const uint4*>(static_cast<const bf16*>(w.data) + n * w.num_in + k);
    const uint4 parts[2] = {from[0], from[1]};
    const auto* values = reinterpret_cast<const bf16*>(parts);
    for (int i = 0; i < kStretch; ++i) out.values[i] = widen(values[i]);
    out.scale = 1.0f;
    return out;
  }
  const uint4 part =
      *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(w.data) + n * w.num_in + k);
  const auto* codes = reinterpret_cast<const uint8_t*>(&part);
  for (int i = 0; i < kStretch; ++i) out.values[i] = widen_e4m3(codes[i]);
  out.scale = w.scales[n / kFp8Block * w.scale_cols + k / kFp8Block];
  return out;
}

/// x[row] . W[n] for up to kRows rows from `first` on, in every lane.
__device__ void dot_rows(const Rows<const bf16>& x, int64_t first, int num_rows, const Weight& w,
                         int64_t n, float* sums) {
  for (int r = 0; r < kRows; ++r) sums[r] = 0.0f;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t k = static_cast<int64_t>(lane) * kStretch; k < w.num_in; k += kWarp * kStretch) {
    const Stretch stretch = load_stretch(w, n, k);
    for (int r = 0; r < kRows; ++r) {
      if (r >= num_rows) break;
      const bf16* row = x.data + (first + r) * x.stride + k;
      float partial = 0.0f;
      for (int i = 0; i < kStretch; ++i) partial = fmaf(widen(row[i]), stretch.values[i], partial);
      sums[r] = fmaf(partial, stretch.scale, sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = warp_sum(sums[r]);
}

/// Which output a warp has, and which rows its block.
struct Place {
  int64_t n, first;
  int num_rows;
};
__device__ Place place_of(int64_t num_rows) {
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kRows;
  const int64_t left = num_rows - first;
  return {static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp, first,
          static_cast<int>(left < kRows ? left : kRows)};
}

template <bool kResidual>
__global__ void linear_kernel(Rows<const bf16> x, Weight w, Rows<bf16> out) {
  const Place place = place_of(x.num_rows);
  if (place.n >= w.num_out) return;
  float sums[kRows];
  dot_rows(x, place.first, place.num_rows, w, place.n, sums);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < place.num_rows; ++r) {
    bf16* to = out.data + (place.first + r) * out.stride + place.n;
    *to = kResidual ? narrow(widen(*to) + round_bf16(sums[r])) : narrow(sums[r]);
  }
}

__global__ void gate_up_kernel(Rows<const bf16> x, Weight gate, Weight up, Rows<bf16> out) {
  const Place place = place_of(x.num_rows);
  if (place.n >= gate.num_out) return;
  float gates[kRows];
  float ups[kRows];
  dot_rows(x, place.first, place.num_rows, gate, place.n, gates);
  dot_rows(x, place.first, place.num_rows, up, place.n, ups);
  if (threadIdx.x % kWarp != 0) return;
  for (int r = 0; r < place.num_rows; ++r) {
    const float s = round_bf16(silu(round_bf16(gates[r])));
    out.data[(place.first + r) * out.stride + place.n] = narrow(s * round_bf16(ups[r]));
  }
}

dim3 grid_of(const Weight& w, int64_t num_rows) {
  return dim3(static_cast<unsigned>((w.num_out + kWarps - 1) / kWarps),
              static_cast<unsigned>((num_rows + kRows - 1) / kRows));
}

}  // namespace

cudaError_t launch_linear(Rows<const bf16> x, const Weight& w, bool adds, Rows<bf16> out,
                          cudaStream_t stream) {
  const dim3 grid = grid_of(w, x.num_rows);
  if (adds) {
    linear_kernel<true><<<grid, kWarps * kWarp, 0, stream>>>(x, w, out);
  } else {
    linear_kernel<false><<<grid, kWarps * kWarp, 0, stream>>>(x, w, out);
  }
  return cudaGetLastError();
}

cudaError_t launch_gate_up(Rows<const bf16> x, const Weight& gate, const Weight& up, Rows<bf16> out,
                           cudaStream_t stream) {
  gate_up_kernel<<<grid_of(gate, x.num_rows), kWarps * kWarp, 0, stream>>>(x, gate, up, out);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
