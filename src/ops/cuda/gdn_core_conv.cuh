#pragma once
// Conv and SiLU of q, k and v of a run of one row, and the conv ring of any run.
//
// The blocks of a key head all read the same three old columns of q and k. A run of up to 13 rows writes
// other columns than those, and the first block of the key head does so. A longer one overwrites
// some of them: each block takes a ticket when it has read, and the one that gets the last writes (and
// puts the tickets back to 0). v's channels belong to one block. Which block writes changes no value.

#include "ops/cuda/gdn_core_block.cuh"

namespace sluice::cuda::gdn {

/// The conv of one channel, before SiLU; x oldest first.
__device__ __forceinline__ float convolve(float4 w, float x0, float x1, float x2, float x3) {
  return fmaf(w.w, x3, fmaf(w.z, x2, fmaf(w.y, x1, fmaf(w.x, x0, 0.0f))));
}

/// rb(silu(rb(conv))) of two channels, inputs and result by pairs.
__device__ __forceinline__ uint32_t convolve_pair(float4 w0, float4 w1, uint32_t x0, uint32_t x1,
                                                  uint32_t x2, uint32_t x3) {
  const uint32_t c =
      narrow_pair(convolve(w0, low_bf16(x0), low_bf16(x1), low_bf16(x2), low_bf16(x3)),
                  convolve(w1, high_bf16(x0), high_bf16(x1), high_bf16(x2), high_bf16(x3)));
  return narrow_pair(silu_unbranched(low_bf16(c)), silu_unbranched(high_bf16(c)));
}

/// Old inputs may be read before the step's earlier kernels are done.
template <typename L>
__device__ __forceinline__ uint32_t load_old(const Place<L>& at, unsigned channel, int back) {
  const int position = at.run.position - back;
  return position < 0 ? 0u : at.ring(at.run.slot, position)[channel].bits;
}

/// A run's one row: a thread has one channel of q or k, or of v.
template <typename L>
struct RowConv {
  float4 weights;
  float x[kHistory];
  const bf16* from;

  __device__ RowConv(const Place<L>& at, unsigned channel) {
    weights = reinterpret_cast<const float4*>(at.args.conv_weight)[channel];
#pragma unroll
    for (int j = 0; j < kHistory; ++j) x[j] = low_bf16(load_old(at, channel, kHistory - j));
    from = at.row_of(at.args.qkv, 0) + channel;
  }
  __device__ __forceinline__ bf16 value() const {
    const float c = convolve(weights, x[0], x[1], x[2], widen(*from));
    return round_half(silu_unbranched(widen(round_half(c))));
  }
};

// ---- the conv ring ----

/// Raw inputs of rows [begin, end) of the run, of `num_channels` channels, into the ring of `slot`.
/// Rows below 0 are still in the run's own ring. One warp.
template <typename L>
__device__ __forceinline__ void copy_to_ring(const Place<L>& at, int slot, int begin, int end,
                                             unsigned channel, unsigned num_channels) {
  const unsigned vectors = num_channels / kVector;
  const unsigned items = static_cast<unsigned>(end - begin) * vectors;
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (unsigned first = threadIdx.x % kWarp; first < items; first += kAtOnce * kWarp) {
    uint4 values[kAtOnce] = {};
    bf16* to[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const unsigned item = first + i * kWarp;
      const int row = begin + static_cast<int>(item / vectors);
      const int position = at.run.position + row;
      const unsigned c = channel + item % vectors * kVector;
      to[i] = nullptr;
      if (item < items && position >= 0) {
        const bf16* from = row >= 0 ? at.row_of(at.args.qkv, row) : at.ring(at.run.slot, position);
        values[i] = *reinterpret_cast<const uint4*>(from + c);
        to[i] = at.ring(slot, position) + c;
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
__device__ __forceinline__ void copy_part(const Place<L>& at, int part, int slot, int begin,
                                          int end) {
  const unsigned channel = part == 2 ? at.v_channel() : at.qk_channel(static_cast<unsigned>(part));
  copy_to_ring(at, slot, begin, end, channel, part == 2 ? L::kColumns : kHeadDim);
}

/// The checkpoint's ring. One warp.
template <typename L>
__device__ __forceinline__ void leave_checkpoint(const Place<L>& at) {
  const int rows = at.checkpoint_rows();
  if (rows == 0) return;
#pragma unroll 1
  for (int part = at.is_first() ? 0 : 2; part < 3; ++part) {
    copy_part(at, part, at.run.checkpoint_slot, rows - kHistory, rows);
  }
}

/// When the block has read its old columns: who writes q's and k's columns of a run that overwrites old
/// ones. One thread, the one that leaves the checkpoint.
template <typename L>
__device__ __forceinline__ void take_ticket(const Place<L>& at) {
  __threadfence();
  const int last = static_cast<int>(gridDim.x) - 1;
  const bool is_last = atomicAdd(at.ticket(), 1) == last;
  at.shared.writes_qk[at.half] = is_last;
  if (is_last) *at.ticket() = 0;
  __threadfence();
}

/// Warps 0, 1 and 2 by `part`, at the end.
template <typename L>
__device__ __forceinline__ void advance_ring(const Place<L>& at, int part) {
  const bool writes_qk =
      at.num_rows() <= kRowsBesideHistory ? at.is_first() : at.shared.writes_qk[at.half];
  if (part > 2 || (part < 2 && !writes_qk)) return;
  copy_part(at, part, at.run.slot, max(0, at.num_rows() - kRingColumns), at.num_rows());
}

}  // namespace sluice::cuda::gdn
