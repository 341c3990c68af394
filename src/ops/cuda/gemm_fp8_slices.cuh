#pragma once
// Split tiles of gemm_fp8.h: K in slices, each summed from zero, their totals added in turn. A block takes all slices of a tile and keeps the running total in device memory, or several blocks take one each
// and whoever has nothing else left adds them up: the same additions, so the same bits.

#include "ops/cuda/gemm_fp8_epilogue.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/tickets.cuh"

namespace sluice::cuda {

/// Totals of a tile as they lie in device memory: quad q of a consumer thread is at [q * kFp8Consumers].
template <typename Shape>
struct Fp8Slot {
  static constexpr int kQuads = Shape::kPieces * Shape::kSums / 4;
  static constexpr int kPieceQuads = Shape::kSums / 4;

  __device__ static float4* at(const Fp8Params& params, int slot) {
    return reinterpret_cast<float4*>(params.partials) +
           static_cast<int64_t>(slot) * kQuads * kFp8Consumers + thread_read_here();
  }
  __device__ static float* quad(Fp8Totals<Shape>& totals, int q) {
    return &totals.v[q / kPieceQuads][q % kPieceQuads * 4];
  }
  __device__ static void load(const float4* from, Fp8Totals<Shape>& totals) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float4 v = __ldcg(from + q * kFp8Consumers);
      float* to = quad(totals, q);
      to[0] = v.x;
      to[1] = v.y;
      to[2] = v.z;
      to[3] = v.w;
    }
  }
  __device__ static void store(const Fp8Totals<Shape>& totals, float4* to) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const float* v = &totals.v[q / kPieceQuads][q % kPieceQuads * 4];
      __stcg(to + q * kFp8Consumers, make_float4(v[0], v[1], v[2], v[3]));
    }
  }
};

__device__ __forceinline__ void add_before(float* v, float4 before) {
  v[0] = __fadd_rn(before.x, v[0]);
  v[1] = __fadd_rn(before.y, v[1]);
  v[2] = __fadd_rn(before.z, v[2]);
  v[3] = __fadd_rn(before.w, v[3]);
}

/// totals = what lies at `from` + totals.
template <typename Shape>
__device__ __forceinline__ void add_fp8_slot(Fp8Totals<Shape>& totals, const float4* from) {
  using Slot = Fp8Slot<Shape>;
  constexpr int kAtOnce = Slot::kQuads < 16 ? Slot::kQuads : Slot::kQuads % 16 == 0 ? 16 : 12;
  static_assert(Slot::kQuads % kAtOnce == 0);
#pragma unroll
  for (int first = 0; first < Slot::kQuads; first += kAtOnce) {
    float4 before[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) before[i] = __ldcg(from + (first + i) * kFp8Consumers);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) add_before(Slot::quad(totals, first + i), before[i]);
    // Or ptxas loads everything at once, into registers it does not have.
    asm volatile("" ::: "memory");
  }
}

/// The block's running total of a tile whose slices it takes in turn; a thread meets only what it wrote itself. Slots behind those of shared tiles.
template <typename Shape>
__device__ __forceinline__ float4* running_fp8_slot(const Fp8Params& params) {
  return Fp8Slot<Shape>::at(
      params, params.num_shared * Shape::kCluster * kFp8Slices + static_cast<int>(blockIdx.x));
}

/// Tickets of a shared tile of a block: slices left, tiles finished, both counted by warps.
__device__ __forceinline__ int* fp8_tickets(const Fp8Params& params, int shared) {
  return params.tickets + 2 * shared;
}

/// Leaves a slice for whoever finishes the tile: the same warp of another block.
template <typename Shape>
__device__ __forceinline__ void leave_fp8_slice(const Fp8Params& params, int shared, int slice,
                                                const Fp8Totals<Shape>& totals) {
  Fp8Slot<Shape>::store(totals, Fp8Slot<Shape>::at(params, shared * kFp8Slices + slice));
  leave_warp_ticket(fp8_tickets(params, shared));
}

/// Finishes what several blocks have summed; a warp what the same warp of theirs left.
template <typename Shape>
__device__ __forceinline__ void finish_fp8_tile(const Fp8Params& params, Fp8Ring<Shape> ring,
                                                Fp8Place place, int shared) {
  using Slot = Fp8Slot<Shape>;
  int* tickets = fp8_tickets(params, shared);
  await_warp_tickets(tickets, kFp8Slices * kFp8Warps);
  Fp8Totals<Shape> totals;
  const float4* from = Slot::at(params, shared * kFp8Slices);
  Slot::load(from, totals);
#pragma unroll 1  // or registers run out
  for (int slice = 1; slice < kFp8Slices; ++slice) {
    from += Slot::kQuads * kFp8Consumers;
    add_fp8_slot(totals, from);
  }
  store_fp8_tile(params, ring, place, totals);
  // The last warp leaves the tickets as it found them.
  if (lane_read_here() == 0 && atomicAdd(tickets + 1, 1) == kFp8Warps - 1) {
    tickets[0] = 0;
    tickets[1] = 0;
  }
}

/// This block's share of such tiles. All slices are summed or will be: no grid is larger than the device, and no block waits before it has left its own. Blocks with a unit less than others come first.
template <typename Shape>
__device__ __forceinline__ void finish_fp8_tiles(const Fp8Params& params, Fp8Ring<Shape> ring) {
  const auto grid = static_cast<int>(gridDim.x);
  const int begin =
      (static_cast<int>(blockIdx.x) + grid - params.num_units * Shape::kCluster % grid) % grid;
#pragma unroll 1
  for (int i = begin; i < params.num_shared * Shape::kCluster; i += grid) {
    const Fp8Place place = fp8_split_place<Shape>(params, i / Shape::kCluster, i % Shape::kCluster);
    finish_fp8_tile(params, ring, place, i);
  }
}

/// A unit's slices, one or all of them.
template <typename Shape>
__device__ __forceinline__ void consume_fp8_slices(const Fp8Params& params, Fp8Ring<Shape> ring,
                                                   RingCursor<Shape::kStages>& at, Fp8Place place) {
#pragma unroll 1
  for (int slice = place.first_slice;; ++slice) {
    Fp8Totals<Shape> totals;
    sum_fp8_tile(ring, at, place, fp8_slice_begin(slice, place.num_slices, params.num_blocks),
                 fp8_slice_begin(slice + 1, place.num_slices, params.num_blocks), totals);
    // The tokens it summed came behind the feeder's wait; this thread's own is due before it reads or writes device memory.
    pdl_wait();
    if (place.shared >= 0) {
      leave_fp8_slice(params, place.shared, slice, totals);
      return;
    }
    if (slice > 0) add_fp8_slot(totals, running_fp8_slot<Shape>(params));
    if (slice + 1 == place.num_slices) {
      store_fp8_tile(params, ring, place, totals);
      return;
    }
    Fp8Slot<Shape>::store(totals, running_fp8_slot<Shape>(params));
  }
}

}  // namespace sluice::cuda
