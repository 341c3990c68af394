#pragma once
// Conv and SiLU of q, k and v, and the conv ring.
//
// The blocks of a key head all read the same three old columns of q and k. A run of up to 13 rows writes
// other columns than those, and the first block of the key head does so. A longer one overwrites
// some of them: each block takes a ticket when it has read, and the one that gets the last writes (and
// puts the tickets back to 0). v's channels belong to one block. Which block writes changes no value.

#include "ops/cuda/gdn_core_block.cuh"

namespace sluice::cuda::gdn {

/// One channel's taps, oldest first, while it slides over the rows.
struct Channel {
  float4 w;
  float x[kHistory];

  /// The next row: rb(silu(rb(conv))).
  __device__ float step(float now) {
    const float c = fmaf(w.w, now, fmaf(w.z, x[2], fmaf(w.y, x[1], fmaf(w.x, x[0], 0.0f))));
    x[0] = x[1], x[1] = x[2], x[2] = now;
    return widen(round_half(silu_unbranched(widen(round_half(c)))));
  }
};

/// Old inputs of `channel` (and the next one) may be read before the step's earlier kernels are done.
__device__ __forceinline__ uint32_t load_old(const Place& at, unsigned channel, int back,
                                             bool pair) {
  const int position = at.position - back;
  if (position < 0) return 0u;
  const bf16* from = at.ring + at.column(position) + channel;
  return pair ? load_pair(from) : from->bits;
}

/// q and k: a thread has one channel.
struct QkConv {
  Channel channel;
  const bf16* from;
  unsigned which, dim;

  __device__ QkConv(const GdnCore& args, const Place& at) {
    which = threadIdx.x / kHeadDim % 2;
    dim = threadIdx.x % kHeadDim;
    const unsigned index = (which * args.num_k_heads + at.key_head) * kHeadDim + dim;
    channel.w = reinterpret_cast<const float4*>(args.conv_weight)[index];
#pragma unroll
    for (int j = 0; j < kHistory; ++j) {
      channel.x[j] = low_bf16(load_old(at, index, kHistory - j, false));
    }
    from = at.qkv + index;
  }

  /// Rows [first, first + kRows) of the tile, of which `count` in all exist, from their inputs x.
  template <int kRows, int kLoaded, typename L>
  __device__ __forceinline__ void rows(const float (&x)[kLoaded], int first, int count,
                                       Shared<L>& shared) {
    float y[kRows], squares[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      y[i] = channel.step(x[first + i]);
      squares[i] = y[i] * y[i];
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (first + i < count) shared.qk[first + i][which][dim] = y[i];
    }
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        squares[i] += __shfl_xor_sync(kAllLanes, squares[i], step);
      }
    }
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (first + i < count) shared.squares[first + i][which][dim / kWarp] = squares[i];
      }
    }
  }

  /// The run's first tile comes from global memory, the others lie in `raw`.
  template <typename L>
  __device__ __forceinline__ void tile(const GdnCore& args, int row, int count, Shared<L>& shared) {
    const bf16* input = row == 0 ? from : &shared.raw[0][which][dim];
    const int stride = row == 0 ? static_cast<int>(args.qkv.stride) : kChannelsQk;
    if (count == 1) {
      const float x[1] = {widen(*input)};
      rows<1>(x, 0, 1, shared);
      return;
    }
    float x[kTileRows];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) x[i] = i < count ? widen(input[i * stride]) : 0.0f;
    rows<kRowsAtOnce>(x, 0, count, shared);
    if (count > kRowsAtOnce) rows<kRowsAtOnce>(x, kRowsAtOnce, count, shared);
  }
};

/// Sends for the inputs of q and k of a tile. The helper.
template <typename L>
__device__ __forceinline__ void fetch_tile(const GdnCore& args, const Place& at, int row, int count,
                                           Shared<L>& shared) {
  constexpr int kVectors = kHeadDim / kVector;  // of a row of q or k; a warp takes both
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned which = lane / kVectors;
  const unsigned dim = lane % kVectors * kVector;
  const bf16* from = at.qkv + (which * args.num_k_heads + at.key_head) * kHeadDim + dim;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(&shared.raw[i][which][dim]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                 "l"(from + (row + i) * static_cast<int>(args.qkv.stride))
                 : "memory");
  }
}
__device__ __forceinline__ void fetch_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// v: a lane of the helper has pairs of channels.
template <typename L>
struct ValueConv {
  Channel channel[L::kPairsOfLane][2];
  const bf16* from;

  __device__ ValueConv(const GdnCore& args, const Place& at, unsigned lane) {
    const unsigned first = at.v_channel + 2 * lane;
    from = at.qkv + first;
#pragma unroll
    for (int p = 0; p < L::kPairsOfLane; ++p) {
      const unsigned index = first + p * 2 * kWarp;
      const auto* weights = reinterpret_cast<const float4*>(args.conv_weight) + index;
      channel[p][0].w = weights[0];
      channel[p][1].w = weights[1];
#pragma unroll
      for (int j = 0; j < kHistory; ++j) {
        const uint32_t old = load_old(at, index, kHistory - j, true);
        channel[p][0].x[j] = low_bf16(old);
        channel[p][1].x[j] = high_bf16(old);
      }
    }
  }

  template <int kRows>
  __device__ __forceinline__ void rows(int row, int stride, int count, Shared<L>& shared) {
    const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
    for (int p = 0; p < L::kPairsOfLane; ++p) {
      uint32_t x[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        x[i] = i < count ? load_pair(from + (row + i) * stride + p * 2 * kWarp) : 0u;
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const float a = channel[p][0].step(low_bf16(x[i]));
        x[i] = narrow_pair(a, channel[p][1].step(high_bf16(x[i])));
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (i < count) {
          auto* to = reinterpret_cast<uint32_t*>(shared.rows[row + i].values);
          to[p * kWarp + lane] = x[i];
        }
      }
    }
  }

  __device__ __forceinline__ void tile(const GdnCore& args, int row, int count, Shared<L>& shared) {
    const int stride = static_cast<int>(args.qkv.stride);
    if (count == 1) {
      rows<1>(row, stride, 1, shared);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < count; i += kRowsAtOnce) {
      rows<kRowsAtOnce>(row + i, stride, count - i, shared);
    }
  }
};

// ---- the conv ring ----

/// Raw inputs of rows [begin, end) of the run, of `num_channels` channels, into `ring`. Rows below 0
/// are still in the run's own ring. One warp.
__device__ __forceinline__ void copy_to_ring(const GdnCore& args, const Place& at, bf16* ring,
                                             int begin, int end, unsigned channel,
                                             unsigned num_channels) {
  const unsigned vectors = num_channels / kVector;
  const unsigned items = static_cast<unsigned>(end - begin) * vectors;
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (unsigned first = threadIdx.x % kWarp; first < items; first += kAtOnce * kWarp) {
    uint4 values[kAtOnce];
    bf16* to[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const unsigned item = first + i * kWarp;
      const int row = begin + static_cast<int>(item / vectors);
      const unsigned c = channel + item % vectors * kVector;
      to[i] = nullptr;
      if (item < items && at.position + row >= 0) {
        const bf16* from = row >= 0 ? at.qkv + row * static_cast<int>(args.qkv.stride)
                                    : at.ring + at.column(at.position + row);
        values[i] = *reinterpret_cast<const uint4*>(from + c);
        to[i] = ring + at.column(at.position + row) + c;
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (to[i] != nullptr) *reinterpret_cast<uint4*>(to[i]) = values[i];
    }
  }
}

/// q's, k's or the block's v channels.
template <typename L>
__device__ __forceinline__ void copy_part(const GdnCore& args, const Place& at, int part,
                                          bf16* ring, int begin, int end) {
  const unsigned channel =
      part == 2 ? at.v_channel : (part * args.num_k_heads + at.key_head) * kHeadDim;
  copy_to_ring(args, at, ring, begin, end, channel, part == 2 ? L::kColumns : kHeadDim);
}

/// The helper, when the block has read its old columns: the checkpoint's ring, and who writes q's and
/// k's columns of a run that overwrites old ones.
template <typename L>
__device__ __forceinline__ void leave_old_columns(const GdnCore& args, const Place& at,
                                                  Shared<L>& shared) {
  if (at.checkpoint_rows > 0) {
#pragma unroll 1
    for (int part = at.is_first ? 0 : 2; part < 3; ++part) {
      copy_part<L>(args, at, part, at.checkpoint_ring, at.checkpoint_rows - kHistory,
                   at.checkpoint_rows);
    }
    __syncwarp();
  }
  if (at.num_rows <= kRowsBesideHistory || threadIdx.x % kWarp != 0) return;
  __threadfence();
  const int last = args.num_v_heads / args.num_k_heads * L::kSlices - 1;
  shared.writes_qk = atomicAdd(at.ticket, 1) == last;
  if (shared.writes_qk) *at.ticket = 0;
  __threadfence();
}

/// Warp `part` of the consumers, at the end.
template <typename L>
__device__ __forceinline__ void advance_ring(const GdnCore& args, const Place& at,
                                             const Shared<L>& shared, int part) {
  const bool writes_qk = at.num_rows <= kRowsBesideHistory ? at.is_first : shared.writes_qk;
  if (part > 2 || (part < 2 && !writes_qk)) return;
  copy_part<L>(args, at, part, at.ring, max(0, at.num_rows - kRingColumns), at.num_rows);
}

}  // namespace sluice::cuda::gdn
