#pragma once
// What runs of several rows do ahead of the delta rule, a tile of rows at a time: inputs to shared
// memory, conv and SiLU of q, k and v, and the factors of a row.

#include "ops/cuda/gdn_core_conv.cuh"

namespace sluice::cuda::gdn {

/// Sends for the inputs of rows [row - 3, row + count). All threads; cp_async_wait() and a barrier come
/// behind it.
template <typename L>
__device__ __forceinline__ void fetch_inputs(const Place<L>& at, int row, int count,
                                             SharedTile<L>& tile) {
  constexpr int kVectors = SharedTile<L>::kChannels / kVector;  // of a row
  constexpr int kVectorsQk = kChannelsQk / kVector;
  const int items = (kHistory + count) * kVectors;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < items; item += L::kThreads) {
    const int in_tile = item / kVectors;
    const int vector = item % kVectors;
    const unsigned channel = vector < kVectorsQk ? at.qk_channel(vector * kVector / kHeadDim) +
                                                       vector * kVector % kHeadDim
                                                 : at.v_channel() + (vector - kVectorsQk) * kVector;
    const int of_run = row + in_tile - kHistory;
    const int position = at.run.position + of_run;
    const bf16* from =
        of_run >= 0 ? at.row_of(at.args.qkv, of_run) : at.ring(at.run.slot, position);
    cp_async(&tile.raw[in_tile][vector * kVector], from + channel, position >= 0);
  }
}

/// Rows [first, first + kRows) of a tile, of the pair of channels that begins at `channel` of the
/// tile's; rows behind the tile's last come from old inputs and are not wanted.
template <int kRows, typename L>
__device__ __forceinline__ void convolve_rows(const SharedTile<L>& tile, float4 w0, float4 w1,
                                              int first, unsigned channel, uint32_t (&y)[kRows]) {
  uint32_t x[kHistory + kRows];
#pragma unroll
  for (int i = 0; i < kHistory + kRows; ++i) {
    x[i] = *reinterpret_cast<const uint32_t*>(&tile.raw[first + i][channel]);
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) y[i] = convolve_pair(w0, w1, x[i], x[i + 1], x[i + 2], x[i + 3]);
}

/// q and k: a warp of the consumers has 64 channels, half of q or k, and some of the tile's rows. v:
/// likewise 64 columns.
template <typename L>
struct TileConv {
  static constexpr int kChannelsOfWarp = 2 * kWarp;
  static constexpr int kWarpsOverQk = kChannelsQk / kChannelsOfWarp;
  static constexpr int kWarpsOverV = L::kColumns / kChannelsOfWarp;
  static constexpr int kConsumerWarps = L::kConsumers / kWarp;
  static constexpr int kRowsQk = L::kTileRows * kWarpsOverQk / kConsumerWarps;
  static constexpr int kRowsV = L::kTileRows * kWarpsOverV / kConsumerWarps;

  /// The weights of a warp's q or k and v come from far away at first.
  static __device__ __forceinline__ void prefetch(const Place<L>& at) {
    const unsigned warp = threadIdx.x / kWarp;
    const unsigned lane = threadIdx.x % kWarp;
    for (int i = 0; i < 2; ++i) {
      prefetch_l1(weights_of(at, qk_channel(at, channel_of_qk(warp, lane)) + i));
      prefetch_l1(weights_of(at, at.v_channel() + column_of_v(warp, lane) + i));
    }
  }

  static __device__ __forceinline__ void rows_of_qk(const Place<L>& at, int count,
                                                    SharedTile<L>& tile) {
    const unsigned warp = threadIdx.x / kWarp;
    const unsigned lane = threadIdx.x % kWarp;
    const int first = static_cast<int>(warp / kWarpsOverQk) * kRowsQk;
    if (first >= count) return;
    const unsigned channel = channel_of_qk(warp, lane);
    const float4* w = weights_of(at, qk_channel(at, channel));
    uint32_t y[kRowsQk];
    convolve_rows(tile, w[0], w[1], first, channel, y);
    float low[kRowsQk], high[kRowsQk];
    float* to = &tile.qk[first][0][0] + channel;  // q and k of a row lie behind one another
#pragma unroll
    for (int i = 0; i < kRowsQk; ++i) {
      low[i] = low_bf16(y[i]), high[i] = high_bf16(y[i]);
      *reinterpret_cast<float2*>(to + i * kChannelsQk) = make_float2(low[i], high[i]);
      low[i] *= low[i], high[i] *= high[i];
    }
    // Over the 32 channels of 16 lanes, by 16, 8, 4, 2 and 1 channels.
    const int row = first + sum_rows<kRowsQk, 8>(low, lane);
    sum_rows<kRowsQk, 8>(high, lane);
    const unsigned block = channel / kSumChannels;
    tile.squares[row][block / kSums][block % kSums] = low[0] + high[0];
  }

  static __device__ __forceinline__ void rows_of_v(const Place<L>& at, int row, int count,
                                                   Shared<L>& shared) {
    const unsigned warp = threadIdx.x / kWarp;
    const unsigned lane = threadIdx.x % kWarp;
    const int first = static_cast<int>(warp / kWarpsOverV) * kRowsV;
    const unsigned column = column_of_v(warp, lane);
    const float4* w = weights_of(at, at.v_channel() + column);
    uint32_t y[kRowsV];
    convolve_rows(shared.work.tile, w[0], w[1], first, kChannelsQk + column, y);
#pragma unroll
    for (int i = 0; i < kRowsV; ++i) {
      if (first + i < count) {
        *reinterpret_cast<uint32_t*>(&shared.rows[row + first + i].values[column]) = y[i];
      }
    }
  }

 private:
  static __device__ unsigned channel_of_qk(unsigned warp, unsigned lane) {
    return warp % kWarpsOverQk * kChannelsOfWarp + 2 * lane;
  }
  static __device__ unsigned column_of_v(unsigned warp, unsigned lane) {
    return warp % kWarpsOverV * kChannelsOfWarp + 2 * lane;
  }
  static __device__ unsigned qk_channel(const Place<L>& at, unsigned channel) {
    return at.qk_channel(channel / kHeadDim) + channel % kHeadDim;
  }
  static __device__ const float4* weights_of(const Place<L>& at, unsigned channel) {
    return reinterpret_cast<const float4*>(at.args.conv_weight) + channel;
  }
};

/// Of the tile's rows, into this warp's part.
template <typename L>
__device__ __forceinline__ void make_factors(int row, int count, Shared<L>& shared) {
  static_assert(L::kTileRows <= kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  SharedTile<L>& tile = shared.work.tile;
  if (lane < count) {
    const Factors f = factors_of(shared.rows[row + lane].gate, tile.squares[lane]);
    tile.factors[threadIdx.x / kWarp][lane] = make_float4(f.decay, f.weight, f.scale, f.unit_q);
  }
  __syncwarp();
}

/// exp(g) and beta of all rows. One warp.
template <typename L>
__device__ __forceinline__ void make_gates(const Place<L>& at, float exp_A, float dt_bias,
                                           Shared<L>& shared) {
#pragma unroll
  for (int i = 0; i < kGdnCoreRowsMax / kWarp; ++i) {
    const int row = static_cast<int>(threadIdx.x % kWarp) + i * kWarp;
    if (row < at.num_rows()) {
      const float a = widen(at.row_of(at.args.a, row)[at.head()]);
      const float b = widen(at.row_of(at.args.b, row)[at.head()]);
      shared.rows[row].gate = gates_of(a, b, dt_bias, exp_A);
    }
  }
}

}  // namespace sluice::cuda::gdn
