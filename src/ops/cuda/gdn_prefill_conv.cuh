#pragma once
// conv1d + SiLU of a chunk: a lane has four channels of eight rows.

#include "ops/cuda/gdn_prefill_layout.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kConvRows = 8;  // of a lane
constexpr int kConvWarps = kRows / kConvRows;
constexpr int kHistory = gdn::kHistory;

/// Raw inputs of rows [begin - kHistory, begin + kConvRows) of the chunk.
struct ConvInputs {
  uint2 x[kHistory + kConvRows];
};
__device__ __forceinline__ uint2 load_channels(const bf16* from) {
  return *reinterpret_cast<const uint2*>(from);
}
__device__ __forceinline__ ConvInputs load_inputs(const GdnPrefill& args, const Chunk& chunk,
                                                  int channel, int begin) {
  ConvInputs in;
  const bf16* from = args.qkv.data + (chunk.step_row + begin) * args.qkv.stride + channel;
  const int stride = static_cast<int>(args.qkv.stride);
  if (chunk.first + begin >= kHistory && begin + kConvRows <= chunk.count) {
#pragma unroll
    for (int i = 0; i < kHistory + kConvRows; ++i) {
      in.x[i] = load_channels(from + (i - kHistory) * stride);
    }
    return in;
  }
#pragma unroll
  for (int i = 0; i < kHistory + kConvRows; ++i) {
    const int row = begin + i - kHistory;  // of the chunk
    in.x[i] = make_uint2(0u, 0u);
    if (i >= kHistory || chunk.first + row >= 0) {
      if (row < chunk.count) in.x[i] = load_channels(from + (i - kHistory) * stride);
    } else if (chunk.run->position + row >= 0) {
      const int64_t column = (chunk.run->position + row) % kConvRingColumns;
      in.x[i] = load_channels(args.conv.data + chunk.run->slot * args.conv.slot_stride +
                              column * args.conv.num_channels + channel);
    }
  }
  return in;
}

/// out[i]: four channels of row begin + i, bf16; zeros behind the run's end.
__device__ __forceinline__ void convolve(const GdnPrefill& args, const Chunk& chunk,
                                         const ConvInputs& in, int channel, int begin,
                                         uint2 (&out)[kConvRows]) {
  const auto* weights = reinterpret_cast<const float4*>(args.conv_weight) + channel;
  const auto sum = [](const float4& taps, float x0, float x1, float x2, float x3) {
    return fmaf(taps.w, x3, fmaf(taps.z, x2, fmaf(taps.y, x1, taps.x * x0)));
  };
  // Two channels after the other two: fewer weights at a time.
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 w0 = weights[2 * half];
    const float4 w1 = weights[2 * half + 1];
    uint32_t x[kHistory + kConvRows];
#pragma unroll
    for (int i = 0; i < kHistory + kConvRows; ++i) x[i] = half == 0 ? in.x[i].x : in.x[i].y;
#pragma unroll
    for (int i = 0; i < kConvRows; ++i) {
      const uint32_t rounded = narrow_pair(
          sum(w0, low_bf16(x[i]), low_bf16(x[i + 1]), low_bf16(x[i + 2]), low_bf16(x[i + 3])),
          sum(w1, high_bf16(x[i]), high_bf16(x[i + 1]), high_bf16(x[i + 2]), high_bf16(x[i + 3])));
      const uint32_t y = narrow_pair(quick_silu(low_bf16(rounded)), quick_silu(high_bf16(rounded)));
      (half == 0 ? out[i].x : out[i].y) = y;
    }
  }
  if (begin + kConvRows <= chunk.count) return;
#pragma unroll
  for (int i = 0; i < kConvRows; ++i) {
    if (begin + i >= chunk.count) out[i] = make_uint2(0u, 0u);
  }
}

/// Bytes of a lane's channels of eight rows after one another, from the first one's on; swizzled tiles.
struct ChannelPlaces {
  int first;
  /// `at`: where the first row has the lane's unit of 16 bytes.
  __device__ __forceinline__ ChannelPlaces(int at, int lane) : first(at + lane % 2 * 8) {}
  __device__ __forceinline__ int operator[](int i) const {
    return (first ^ i * 16) + i * kTileRowBytes;
  }
};

/// v of a value head into its image. A block of kConvWarps warps.
__device__ __forceinline__ void make_values(const GdnPrefill& args, const Chunk& chunk, int head,
                                            uint8_t* image) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int begin = static_cast<int>(threadIdx.x) / kWarp * kConvRows;
  const int channel = (2 * args.num_k_heads + head) * kHeadDim + 4 * lane;
  const ConvInputs in = load_inputs(args, chunk, channel, begin);
  uint2 out[kConvRows];
  convolve(args, chunk, in, channel, begin, out);
  const ChannelPlaces places(unit_at(begin, lane / 2), lane);
#pragma unroll
  for (int i = 0; i < kConvRows; ++i) *reinterpret_cast<uint2*>(image + places[i]) = out[i];
}

/// The power of two that brings a vector of this sum of squares to a norm in [2^10, 2^11).
__device__ __forceinline__ float unit_power(float squares) {
  if (squares == 0.0f) return 1.0f;
  const int exponent =
      static_cast<int>(__float_as_uint(squares) >> 23) - 127;  // squares in [2^e, 2^(e+1))
  const int power = 10 - (exponent >> 1);                      // norm in [2^(e>>1), 2^((e>>1)+1))
  return __uint_as_float(static_cast<uint32_t>(power + 127) << 23);
}

/// Sums over the warp of eight rows' values; a lane gets that of row lane / 4.
__device__ __forceinline__ float sum_rows(float (&x)[kConvRows]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int rows = kConvRows / 2; rows >= 1; rows /= 2) {
    const int step = 4 * rows;
    const bool is_upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const float kept = is_upper ? x[i + rows] : x[i];
      const float sent = is_upper ? x[i] : x[i + rows];
      x[i] = kept + __shfl_xor_sync(kAllLanes, sent, step);
    }
  }
  float sum = x[0];
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

/// q (which = 1) or k (0) of a key head as scaled f16 into the key image at `vectors`, and 1 / norm of each row. A block of kConvWarps warps.
__device__ __forceinline__ void make_vectors(const GdnPrefill& args, const Chunk& chunk,
                                             const ConvInputs& in, int which, int channel,
                                             uint8_t* vectors, float* inverse) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int begin = static_cast<int>(threadIdx.x) / kWarp * kConvRows;
  uint2 out[kConvRows];
  convolve(args, chunk, in, channel, begin, out);
  float squares[kConvRows];
#pragma unroll
  for (int i = 0; i < kConvRows; ++i) {
    const uint2 c = out[i];
    squares[i] = fmaf(high_bf16(c.y), high_bf16(c.y), low_bf16(c.y) * low_bf16(c.y)) +
                 fmaf(high_bf16(c.x), high_bf16(c.x), low_bf16(c.x) * low_bf16(c.x));
  }
  const float sum = sum_rows(squares);
  const float power = unit_power(sum);
  if (lane % 4 == 0) {
    // A vector of zeros has no norm to bring back, and 1 / sqrt(eps) would take what it scales out of f16's range.
    const float unit = sum == 0.0f ? 0.0f : gdn::inverse_root(sum + gdn::kL2NormEps) / power;
    inverse[begin + lane / 4] = which == 0 ? unit : unit * gdn::kQueryScale;
  }
  const ChannelPlaces places(vector_at(which, place_of(begin), lane / 2), lane);
#pragma unroll
  for (int i = 0; i < kConvRows; ++i) {
    const float p = __shfl_sync(kAllLanes, power, 4 * i);
    const uint2 c = out[i];
    *reinterpret_cast<uint2*>(vectors + places[i]) =
        make_uint2(f16_pair(low_bf16(c.x) * p, high_bf16(c.x) * p),
                   f16_pair(low_bf16(c.y) * p, high_bf16(c.y) * p));
  }
}

}  // namespace sluice::cuda::gdn_prefill
