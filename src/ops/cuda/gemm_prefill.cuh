#pragma once
// The kernel of gemm_prefill: tiles of 128 slots (rows of W) by kTokens tokens, in a persistent grid of which a block has a multiprocessor to itself.
//
// Weights are A in registers, widened on the way, tokens B in shared memory. Two consumer warpgroups of 64 slots each, feeders apart. Tokens are the fastest index
// of the units, so that weights come from memory once. Clusters share token stages.

#include "ops/cuda/gemm_prefill_slices.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda {

/// Registers a thread: at the start, then of feeders and of consumers.
inline constexpr int kPrefillRegisters = 168;
inline constexpr int kPrefillFeederRegisters = 40;
inline constexpr int kPrefillConsumerRegisters = 232;

/// The calling block's place in its cluster, unknown to the compiler.
template <int kBlocks>
__device__ __forceinline__ int block_rank() {
  if constexpr (kBlocks == 1) return 0;
  return static_cast<int>(block_of_cluster());
}

/// All threads of the cluster, each warp together.
template <int kBlocks>
__device__ __forceinline__ void sync_cluster() {
  if constexpr (kBlocks == 1) {
    __syncthreads();
  } else {
    __syncwarp();
    cluster_sync();
  }
}

template <int kTokens, int kBlocks>
__device__ __forceinline__ void run_slice(const PrefillParams& params, int u, int rank, int slice,
                                          PrefillWarp<kTokens, kBlocks>& warp) {
  const PrefillUnit unit = prefill_unit<kTokens, kBlocks>(params, u, rank);
  warp.run_slice(params, prefill_place(params, unit.tile),
                 slice_begin(slice, unit.num_slices, params.num_blocks),
                 slice_begin(slice + 1, unit.num_slices, params.num_blocks));
}

template <int kTokens, int kBlocks>
__device__ void consume_slices(const PrefillParams& params,
                               PrefillRing<PrefillShape<kTokens, kBlocks>> ring) {
  PrefillWarp<kTokens, kBlocks> warp(ring, params.is_pair);
  const int step = static_cast<int>(gridDim.x) / kBlocks;
#pragma unroll 1
  for (int u = static_cast<int>(blockIdx.x) / kBlocks; u < params.num_units; u += step) {
    int slice = prefill_unit<kTokens, kBlocks>(params, u, 0).first_slice;
    bool is_last = false;
#pragma unroll 1
    while (!is_last) {
      run_slice(params, u, block_rank<kBlocks>(), slice, warp);
      // Worked out anew, so that the sums have the registers meanwhile.
      asm volatile("" : "+r"(u));
      const PrefillUnit unit = prefill_unit<kTokens, kBlocks>(params, u, block_rank<kBlocks>());
      const PrefillOut out(params, prefill_place(params, unit.tile),
                           ring.staging(PrefillOut::group()));
      // The tokens it summed came behind the feeder's wait; this thread's own is due before it reads or writes device memory.
      pdl_wait();
      is_last = slice + 1 == unit.end_slice;
      if (unit.shared >= 0) {
        leave_slice<kTokens>(params, out, warp, unit.shared, slice);
      } else {
        if (unit.num_slices > 1) {
          add_running<kTokens, kBlocks>(params, warp, slice > 0, !is_last);
        }
        if (is_last) store_tile<kTokens>(out, warp, unit.token_first, params.num_rows);
      }
      ++slice;
    }
  }
  finish_shares<kTokens, kBlocks>(params, ring);
}

template <int kTokens, int kBlocks>
__global__ void __maxnreg__(kPrefillRegisters)
    gemm_prefill_kernel(const __grid_constant__ PrefillParams params) {
  using Shape = PrefillShape<kTokens, kBlocks>;
  extern __shared__ __align__(1024) uint8_t shared[];
  pdl_launch();
  const PrefillRing<Shape> ring{shared_address(shared)};
  const int rank = block_rank<kBlocks>();
  if (threadIdx.x == 0) {
    if (ring.base % 1024 != 0) __trap();
    ring.init(kBlocks);
  }
  sync_cluster<kBlocks>();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp >= kPrefillFeederWarp) {
    lower_registers<kPrefillFeederRegisters>();
    const bool one = threadIdx.x % kWarp == 0;
    if (warp == kPrefillFeederWarp) {
      if (one) feed_weights<kTokens, kBlocks>(params, ring, rank);
    } else if (warp == kPrefillFeederWarp + 1) {
      if (one) prefetch_map(&params.x);
      pdl_wait();
      if (one) feed_tokens<kTokens, kBlocks>(params, ring, rank);
    } else if (warp == kPrefillFeederWarp + 2) {
      feed_scales<kTokens, kBlocks>(params, ring, rank);
    }
  } else {
    raise_registers<kPrefillConsumerRegisters>();
    consume_slices<kTokens, kBlocks>(params, ring);
  }
  // Other blocks' copies and arrivals still come to this one's shared memory.
  if constexpr (kBlocks > 1) sync_cluster<kBlocks>();
}

}  // namespace sluice::cuda
