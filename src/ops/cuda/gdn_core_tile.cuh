#pragma once
// What runs of several rows do ahead of the delta rule, a tile of rows at a time: inputs to shared
// memory, conv and SiLU of q, k and v, and the factors of a row.

#include "ops/cuda/gdn_core_conv.cuh"

namespace sluice::cuda::gdn {

template <typename L>
using Tile = typename SharedTiles<L>::Tile;

/// A group of warps: this one's place among them, and how many.
struct Crew {
  int warp, num_warps;
};

/// Rows of the tile that begins at `row`; 0 behind the run's last.
template <typename L>
__device__ __forceinline__ int tile_rows(const Place<L>& at, int row) {
  return max(0, min(L::kTileRows, at.num_rows() - row));
}

/// Sends for the inputs of the tile's rows and of the three before. cp_async_wait() and a barrier come
/// behind it.
template <typename L>
__device__ __forceinline__ void fetch_inputs(const Place<L>& at, int row, Crew crew) {
  constexpr int kVectors = SharedTiles<L>::kChannels / kVector;  // of a row
  constexpr int kVectorsQk = kChannelsQk / kVector;
  const int count = tile_rows(at, row);
  if (count == 0) return;
  const int items = (kHistory + count) * kVectors;
#pragma unroll 1
  for (int item = crew.warp * kWarp + static_cast<int>(threadIdx.x % kWarp); item < items;
       item += crew.num_warps * kWarp) {
    const int in_tile = item / kVectors;
    const int vector = item % kVectors;
    const unsigned channel = vector < kVectorsQk ? at.qk_channel(vector * kVector / kHeadDim) +
                                                       vector * kVector % kHeadDim
                                                 : at.v_channel() + (vector - kVectorsQk) * kVector;
    const int of_run = row + in_tile - kHistory;
    const int position = at.run.position + of_run;
    const bf16* from =
        of_run >= 0 ? at.row_of(at.args.qkv, of_run) : at.ring(at.run.slot, position);
    cp_async(&at.shared.work[at.half].several.raw[in_tile][vector * kVector], from + channel,
             position >= 0);
  }
}

/// Conv and SiLU of a tile: a warp takes 64 channels of some rows at a time.
template <typename L>
struct TileConv {
  static constexpr int kChannelsOfUnit = 2 * kWarp;
  static constexpr int kUnitsOverQk = kChannelsQk / kChannelsOfUnit;
  static constexpr int kUnitsOverChannels = SharedTiles<L>::kChannels / kChannelsOfUnit;
  static constexpr int kRows = L::kTileRows < 16 ? L::kTileRows / 4 : 4;  // of a unit

  /// Of the block's channels.
  static __device__ __forceinline__ const float4* weights_of(const Place<L>& at, unsigned channel) {
    const unsigned of_conv = channel < kChannelsQk
                                 ? at.qk_channel(channel / kHeadDim) + channel % kHeadDim
                                 : at.v_channel() + channel - kChannelsQk;
    return reinterpret_cast<const float4*>(at.args.conv_weight) + of_conv;
  }

  /// The weights come from far away at first. The whole half.
  static __device__ __forceinline__ void prefetch(const Place<L>& at) {
#pragma unroll
    for (unsigned i = threadIdx.x % L::kHalfThreads; i < SharedTiles<L>::kChannels;
         i += L::kHalfThreads) {
      prefetch_l1(weights_of(at, i));
    }
  }

  /// The tile of `row` from the inputs that are there.
  static __device__ __forceinline__ void run(const Place<L>& at, int row, Tile<L>& tile,
                                             Crew crew) {
    const unsigned lane = threadIdx.x % kWarp;
    const int count = tile_rows(at, row);
    const int units = (count + kRows - 1) / kRows * kUnitsOverChannels;
#pragma unroll 1
    for (int unit = crew.warp; unit < units; unit += crew.num_warps) {
      const int over = unit % kUnitsOverChannels;
      const int first = unit / kUnitsOverChannels * kRows;
      const unsigned channel = over * kChannelsOfUnit + 2 * lane;
      const float4* w = weights_of(at, channel);
      uint32_t x[kHistory + kRows], y[kRows];
#pragma unroll
      for (int i = 0; i < kHistory + kRows; ++i) {
        // Behind the tile's last row lie old inputs, not wanted.
        x[i] = *reinterpret_cast<const uint32_t*>(
            &at.shared.work[at.half].several.raw[first + i][channel]);
      }
      const float4 w0 = w[0], w1 = w[1];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        y[i] = convolve_pair(w0, w1, x[i], x[i + 1], x[i + 2], x[i + 3]);
      }
      if (over < kUnitsOverQk) {
        leave_qk(tile, first, channel, y);
      } else {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (first + i >= count) break;
          bf16* to = &at.row(row + first + i).values[channel - kChannelsQk];
          *reinterpret_cast<uint32_t*>(to) = y[i];
        }
      }
    }
  }

 private:
  /// A pair of channels of q or k, and the sums of squares.
  static __device__ __forceinline__ void leave_qk(Tile<L>& tile, int first, unsigned channel,
                                                  const uint32_t (&y)[kRows]) {
    const unsigned lane = threadIdx.x % kWarp;
    float low[kRows], high[kRows];
    float* to = &tile.qk[first][0][0] + channel;  // q and k of a row lie behind one another
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      low[i] = low_bf16(y[i]), high[i] = high_bf16(y[i]);
      *reinterpret_cast<float2*>(to + i * kChannelsQk) = make_float2(low[i], high[i]);
      low[i] *= low[i], high[i] *= high[i];
    }
    // Over the 32 channels of 16 lanes, by 16, 8, 4, 2 and 1 channels.
    const int row = first + sum_rows<kRows, 8>(low, lane);
    sum_rows<kRows, 8>(high, lane);
    const unsigned sum = channel / kSumChannels;
    tile.squares[row][sum / kSums][sum % kSums] = low[0] + high[0];
  }
};

/// Of the tile's rows, a lane each. A warp.
template <typename L>
__device__ __forceinline__ void make_factors(const Place<L>& at, int row, Tile<L>& tile) {
  static_assert(L::kTileRows <= kWarp);
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (lane < tile_rows(at, row)) {
    const Factors f = factors_of(at.row(row + lane).gate, tile.squares[lane]);
    tile.factors[lane] = make_float4(f.decay, f.weight, f.scale, f.unit_q);
  }
}

/// exp(g) and beta of all rows. One warp.
template <typename L>
__device__ __forceinline__ void make_gates(const Place<L>& at, float exp_A, float dt_bias) {
#pragma unroll
  for (int row = static_cast<int>(threadIdx.x % kWarp); row < L::kRowsMax; row += kWarp) {
    if (row < at.num_rows()) {
      const float a = widen(at.row_of(at.args.a, row)[at.head()]);
      const float b = widen(at.row_of(at.args.b, row)[at.head()]);
      at.row(row).gate = gates_of(a, b, dt_bias, exp_A);
    }
  }
}

}  // namespace sluice::cuda::gdn
