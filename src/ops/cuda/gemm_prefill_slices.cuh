#pragma once
// Split tiles of gemm_prefill: slices are added in turn, either by the block that takes all of them or by whoever finishes what several blocks left.

#include "ops/cuda/gemm_prefill_out.cuh"

namespace sluice::cuda {

/// The calling thread's part of a slot of sums of a tile in device memory: quad q is at [q * kPrefillConsumers].
template <int kTokens>
__device__ __forceinline__ float4* prefill_slot(const PrefillParams& params, int slot) {
  constexpr int64_t kSlotQuads = static_cast<int64_t>(kTokens / 8) * kPrefillConsumers;
  return reinterpret_cast<float4*>(params.partials) + slot * kSlotQuads + fresh_thread_index();
}

__device__ __forceinline__ float4 add_quads(float4 a, float4 b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z),
                     __fadd_rn(a.w, b.w));
}

template <int kSums>
__device__ __forceinline__ float4 quad_of(const float (&sums)[kSums], int q) {
  return make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]);
}
template <int kSums>
__device__ __forceinline__ void add_quad(float (&sums)[kSums], int q, float4 before) {
  const float4 sum = add_quads(before, quad_of(sums, q));
  sums[4 * q] = sum.x;
  sums[4 * q + 1] = sum.y;
  sums[4 * q + 2] = sum.z;
  sums[4 * q + 3] = sum.w;
}

/// The block's running sum of a tile whose slices it takes in turn: added to unless the slice is the first, kept unless it is the last. A thread meets only what it
/// wrote itself. The slots lie behind those of slices that are shared out.
template <int kTokens, int kBlocks, typename Warp>
__device__ __forceinline__ void add_running(const PrefillParams& params, Warp& warp, bool adds,
                                            bool keeps) {
  constexpr int kQuads = kTokens / 8;
  constexpr int kPieceQuads = Warp::kSums / 4;
  constexpr int kAtOnce = 12;
  float4* at = prefill_slot<kTokens>(
      params, params.num_shared * kBlocks * params.num_slices + static_cast<int>(blockIdx.x));
  if (adds) {
#pragma unroll
    for (int first = 0; first < kQuads; first += kAtOnce) {
      float4 before[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < kQuads) before[i] = __ldcg(at + (first + i) * kPrefillConsumers);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int q = first + i;
        if (q < kQuads) add_quad(warp.sums[q / kPieceQuads], q % kPieceQuads, before[i]);
      }
      // Or ptxas loads everything at once, into registers it does not have.
      asm volatile("" ::: "memory");
    }
  }
  if (keeps) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      __stcg(at + q * kPrefillConsumers, quad_of(warp.sums[q / kPieceQuads], q % kPieceQuads));
    }
  }
}

/// Leaves a slice of shared tile `shared` for whoever finishes the tile.
template <int kTokens, typename Warp>
__device__ __forceinline__ void leave_slice(const PrefillParams& params, const PrefillOut& out,
                                            const Warp& warp, int shared, int slice) {
  float4* to = prefill_slot<kTokens>(params, shared * params.num_slices + slice);
#pragma unroll
  for (int q = 0; q < kTokens / 8; ++q) {
    constexpr int kPieceQuads = Warp::kSums / 4;
    __stcg(to + q * kPrefillConsumers, quad_of(warp.sums[q / kPieceQuads], q % kPieceQuads));
  }
  out.sync();
  if (threadIdx.x % kGroupThreads == 0) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(params.tickets + 2 * shared)
                 : "memory");
  }
}

/// Totals of kMost quads over the slices from `quads` on. What lies behind a tile's last quads is added up too, for nothing: a running sum's slot is behind them all.
template <int kTokens, int kMost>
__device__ __forceinline__ void add_slices(const float4* quads, int num_slices,
                                           float4 (&totals)[kMost]) {
  constexpr int kSlotQuads = kTokens / 8 * kPrefillConsumers;
  constexpr int kAtOnce = 3;  // slices
#pragma unroll 1
  for (int first = 0; first < num_slices; first += kAtOnce) {
    float4 loaded[kAtOnce][kMost];
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= num_slices) break;
#pragma unroll
      for (int i = 0; i < kMost; ++i) loaded[s][i] = __ldcg(quads + i * kPrefillConsumers);
      quads += kSlotQuads;
    }
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s) {
      if (first + s >= num_slices) break;
#pragma unroll
      for (int i = 0; i < kMost; ++i) {
        totals[i] = first + s == 0 ? loaded[s][i] : add_quads(totals[i], loaded[s][i]);
      }
    }
  }
}

/// Finishes one of a shared tile's shares of tokens, of which it has as many as slices. Waits for the slices, which other blocks of this grid hold: all of them
/// are running or will be, since no grid is larger than the device and no block waits before it has left its own slices.
template <int kTokens>
__device__ __forceinline__ void finish_share(const PrefillParams& params, const PrefillOut& out,
                                             int token_first, int shared, int share) {
  constexpr int kQuads = kTokens / 8;
  constexpr int kMost = (kQuads + 2) / 3;  // no tile is split in two
  constexpr int kAtOnce = kStagedTokens / 8;
  const int first = share * kQuads / params.num_slices;
  const int count = (share + 1) * kQuads / params.num_slices - first;
  token_first += 8 * first;
  int* tickets = params.tickets + 2 * shared;
  const bool one = threadIdx.x % kGroupThreads == 0;
  PrefillOut::Old old = out.load_old(token_first, min(count, kAtOnce) * 8);
  if (one) {
    int left;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(left) : "l"(tickets) : "memory");
    } while (left < 2 * params.num_slices);
  }
  out.sync();
  float4 totals[kMost];
  add_slices<kTokens>(
      prefill_slot<kTokens>(params, shared * params.num_slices) + first * kPrefillConsumers,
      params.num_slices, totals);
#pragma unroll
  for (int begin = 0; begin < kMost; begin += kAtOnce) {
    if (begin >= count) break;
    const int tokens = min(count - begin, kAtOnce) * 8;
    if (begin > 0) {
      old = out.load_old(token_first + begin * 8, tokens);
      out.sync();
    }
#pragma unroll
    for (int i = begin; i < kMost && i < begin + kAtOnce; ++i) {
      if (i < count) out.stage(i - begin, totals[i].x, totals[i].y, totals[i].z, totals[i].w);
    }
    out.sync();
    if (out.is_pair()) {
      out.store_gate_up(token_first + begin * 8, tokens);
    } else {
      out.store_plain(token_first + begin * 8, tokens, old);
    }
  }
  // The last one leaves the tickets as it found them.
  if (one && atomicAdd(tickets + 1, 1) == 2 * params.num_slices - 1) {
    tickets[0] = 0;
    tickets[1] = 0;
  }
}

/// This block's shares of all tiles whose slices are shared out. Blocks with a unit less than others come first.
template <int kTokens, int kBlocks, typename Ring>
__device__ __forceinline__ void finish_shares(const PrefillParams& params, Ring ring) {
  const int grid = static_cast<int>(gridDim.x);
  const int num_items = params.num_shared * kBlocks * params.num_slices;
  const int begin =
      (static_cast<int>(blockIdx.x) + grid - params.num_units * kBlocks % grid) % grid;
#pragma unroll 1
  for (int i = begin; i < num_items; i += grid) {
    const int shared = i / params.num_slices;
    const PrefillUnit unit = prefill_unit<kTokens, kBlocks>(
        params, shared / kBlocks * params.num_slices, shared % kBlocks);
    const PrefillOut out(params, prefill_place(params, unit.tile),
                         ring.staging(PrefillOut::group()));
    finish_share<kTokens>(params, out, unit.token_first, shared, i % params.num_slices);
  }
}

}  // namespace sluice::cuda
