#pragma once
// Tiles whose parts of K are summed by several blocks: partial sums meet in device memory and are added in the order of the tree, whoever adds them.

#include <algorithm>

#include "ops/cuda/gemm_out.cuh"
#include "ops/cuda/gemm_ring.cuh"
#include "ops/cuda/tickets.cuh"

namespace sluice::cuda {

__device__ __forceinline__ void sync_consumers() {
  asm volatile("bar.sync 3, %0;" ::"n"(kGemmConsumers) : "memory");  // 1 and 2: a warpgroup each
}

/// The calling thread's share of a slot of partial sums of a tile: quad q is at [q * kGemmConsumers].
template <int kTokens>
__device__ __forceinline__ float4* partial_slot(const GemmParams& params, int slot) {
  constexpr int64_t kSlotQuads = static_cast<int64_t>(kTokens / 8) * kGemmConsumers;
  return reinterpret_cast<float4*>(params.partials) + slot * kSlotQuads + threadIdx.x;
}

/// Leaves slice `slice` of split tile `split` where the blocks that finish the tile find it.
template <int kTokens>
__device__ void leave_slice(const GemmParams& params, int split, int slice,
                            const float (&sums)[kTokens / 2]) {
  float4* to = partial_slot<kTokens>(params, split * params.num_slices + slice);
#pragma unroll
  for (int q = 0; q < kTokens / 8; ++q) {
    const float* v = sums + 4 * q;
    __stcg(to + q * kGemmConsumers, make_float4(v[0], v[1], v[2], v[3]));
  }
  sync_consumers();
}

__device__ __forceinline__ void add_to(float4& sum, float4 x) {
  sum.x = __fadd_rn(sum.x, x.x);
  sum.y = __fadd_rn(sum.y, x.y);
  sum.z = __fadd_rn(sum.z, x.z);
  sum.w = __fadd_rn(sum.w, x.w);
}

/// One quad's total over the slices that begin at `first`: the tree's groups of parts, or its parts.
template <int kTokens>
__device__ __forceinline__ float4 add_slices(const float4* first, int num_slices) {
  constexpr int kSlotQuads = kTokens / 8 * kGemmConsumers;
  if (num_slices != kNumParts) {
    float4 total = __ldcg(first);
#pragma unroll 2
    for (int s = 1; s < num_slices; ++s) add_to(total, __ldcg(first + s * kSlotQuads));
    return total;
  }
  float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int begin = 0; begin < kNumParts; begin += 3) {
    float4 group = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int s = begin; s < begin + 3 && s < kNumParts; ++s) {
      add_to(group, __ldcg(first + s * kSlotQuads));
    }
    add_to(total, group);
  }
  return total;
}

/// A warpgroup's way out of a tile of up to kTokens rows; its threads take 32 of gate|up at a time.
template <int kTokens>
using SkinnyOut = TileOut<GemmParams, std::max(kTokens, 32)>;

/// Sums of f16 rows are multiplied by what packing divided them by.
template <bool kPair, int kSums>
__device__ __forceinline__ void scale_rows(const GemmParams& params, GemmPlace place,
                                           float (&sums)[kSums]) {
  const GemmKernelSegment& segment = params.segments[place.segment];
  if (segment.row_factors == nullptr) return;
  const int thread = static_cast<int>(fresh_thread_index());
  const int low =
      (place.tile * (kPair ? kTileGroups / 2 : kTileGroups) + thread / kWarp * (kPair ? 1 : 2)) *
          kRowGroup +
      thread % kWarp / 4;
  const int high = kPair ? low : low + kRowGroup;
  const float* high_factors = kPair ? params.segments[1].row_factors : segment.row_factors;
  const float low_factor = __ldg(segment.row_factors + min(low, segment.num_out - 1));
  const float high_factor = __ldg(high_factors + min(high, segment.num_out - 1));
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    sums[i] = __fmul_rn(sums[i], i % 4 < 2 ? low_factor : high_factor);
  }
}

/// Stores the first `count` quads of `sums`, of tokens from token_first on. The warpgroup's staging is free, before and behind.
template <bool kPair, int kSums, typename Out>
__device__ __forceinline__ void store_quads(const Out& out, const float (&sums)[kSums], int count,
                                            int token_first, const typename Out::Old& old) {
#pragma unroll
  for (int q = 0; q < kSums / 4; ++q) {
    const float* v = sums + 4 * q;
    if (q < count) out.stage(q, v[0], v[1], v[2], v[3]);
  }
  out.sync();
  if (kPair) {
    out.store_gate_up(token_first, 8 * count);
  } else {
    out.store_plain(token_first, 8 * count, old);
  }
  out.sync();
}

/// Of a whole tile, all tokens.
template <int kTokens, bool kPair>
__device__ __forceinline__ void store_tile(const GemmParams& params, GemmPlace place,
                                           uint32_t staging, float (&sums)[kTokens / 2]) {
  const SkinnyOut<kTokens> out(params, place, staging);
  const auto old = out.load_old(0, kTokens);
  scale_rows<kPair>(params, place, sums);
  out.sync();  // the staging held the trees' totals
  store_quads<kPair>(out, sums, kTokens / 8, 0, old);
}

/// Adds and stores `count` (at most kMost) quads of split tile `split` from `first` on, once wait() has returned: the warpgroup's staging is free by then.
template <int kTokens, bool kPair, int kMost, typename Wait>
__device__ __forceinline__ void finish_quads(const GemmParams& params, GemmPlace place,
                                             uint32_t staging, int split, int first, int count,
                                             Wait wait) {
  const SkinnyOut<kTokens> out(params, place, staging);
  const auto old = out.load_old(8 * first, 8 * count);
  wait();
  const float4* from = partial_slot<kTokens>(params, split * params.num_slices);
  float totals[4 * kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    if (i >= count) continue;
    const float4 v = add_slices<kTokens>(from + (first + i) * kGemmConsumers, params.num_slices);
    totals[4 * i] = v.x;
    totals[4 * i + 1] = v.y;
    totals[4 * i + 2] = v.z;
    totals[4 * i + 3] = v.w;
  }
  scale_rows<kPair>(params, place, totals);
  store_quads<kPair>(out, totals, count, 8 * first, old);
}

/// Finishes one of a split tile's shares of tokens, of which it has as many as slices. Waits for the slices, which other blocks of this grid hold: all of them
/// are running or will be, since no grid is larger than the device and no block waits before it has left its own slices.
template <int kTokens, bool kPair>
__device__ void finish_share(const GemmParams& params, GemmPlace place, uint32_t staging, int split,
                             int share) {
  constexpr int kQuads = kTokens / 8;
  const int first = share * kQuads / params.num_slices;
  const int count = (share + 1) * kQuads / params.num_slices - first;
  int* tickets = params.tickets + 2 * split;
  if (count > 0) {
    const auto wait = [&] {
      if (threadIdx.x == 0) await_tickets(tickets, params.num_slices);
      sync_consumers();
    };
    constexpr int kMost = (kQuads + 2) / 3;  // no tile is split in two
    finish_quads<kTokens, kPair, kMost>(params, place, staging, split, first, count, wait);
  }
  // The last share leaves the tickets as it found them.
  if (threadIdx.x == 0 && atomicAdd(tickets + 1, 1) == params.num_slices - 1) {
    tickets[0] = 0;
    tickets[1] = 0;
  }
}

/// For few tokens, where a share is not worth a wait: the block that leaves a tile's last slice finishes it alone. `last` is in shared memory.
template <int kTokens, bool kPair>
__device__ void finish_if_last(const GemmParams& params, GemmPlace place, uint32_t staging,
                               int split, int* last) {
  if (threadIdx.x == 0) {
    int taken;
    int* ticket = params.tickets + 2 * split;
    asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
                 : "=r"(taken)
                 : "l"(ticket)
                 : "memory");
    *last = taken == params.num_slices - 1 ? 1 : 0;
    if (*last != 0) *ticket = 0;
  }
  sync_consumers();
  if (*last == 0) return;
  constexpr int kQuads = kTokens / 8;
  finish_quads<kTokens, kPair, kQuads>(params, place, staging, split, 0, kQuads, [] {});
}

/// The shares of this block, of `num_split` tiles; f(split tile, share). Blocks with a unit less than others come first.
template <typename F>
__device__ __forceinline__ void for_shares(const GemmParams& params, int num_split, F f) {
  const int grid = static_cast<int>(gridDim.x);
  const int begin = (static_cast<int>(blockIdx.x) + grid - params.num_units % grid) % grid;
  for (int i = begin; i < num_split * params.num_slices; i += grid) {
    f(i / params.num_slices, i % params.num_slices);
  }
}

}  // namespace sluice::cuda
