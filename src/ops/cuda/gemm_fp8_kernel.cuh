#pragma once
// Kernel of gemm_fp8.h: two consumer warpgroups, then one of which three warps feed.

#include "ops/cuda/gemm_fp8_epilogue.cuh"
#include "ops/cuda/gemm_fp8_feed.cuh"
#include "ops/cuda/gemm_fp8_slices.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda {

template <typename Shape>
__device__ void consume_fp8(const Fp8Params& params, Fp8Ring<Shape> ring) {
  RingCursor<Shape::kStages> at;
  for_fp8_tiles<Shape>(params, [&](Fp8Place place) {
    if constexpr (Shape::kSide) {
      if (place.is_side) {
        float sums[kFp8SideSums];
        sum_fp8_side(params, ring, at, sums);
        pdl_wait();
        store_fp8_side(params, place, sums);
        return;
      }
    }
    if constexpr (Shape::kSplit) {
      consume_fp8_slices(params, ring, at, place);
      return;
    }
    Fp8Totals<Shape> totals;
    sum_fp8_tile(ring, at, place, 0, params.num_blocks, totals);
    // The tokens it summed came behind the feeder's wait; this thread's own is due before it reads or writes device memory.
    pdl_wait();
    store_fp8_tile(params, ring, place, totals);
  });
  if constexpr (Shape::kSplit) finish_fp8_tiles(params, ring);
}

template <typename Shape>
__global__ void __launch_bounds__(kFp8Threads, 1)
    gemm_fp8_kernel(const __grid_constant__ Fp8Params params) {
  extern __shared__ uint8_t shared[];
  pdl_launch();
  const Fp8Ring<Shape> ring{(shared_address(shared) + 1023) & ~1023u};
  if (threadIdx.x == 0) ring.init();
  if constexpr (Shape::kCluster > 1) {
    cluster_sync();
  } else {
    __syncthreads();
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const bool one = threadIdx.x % kWarp == 0;
  if (warp >= kFp8Warps) {
    lower_registers<Shape::kFeederRegisters>();
    if (warp == kFp8Warps && one) feed_fp8_weights(params, ring);
    if (warp == kFp8Warps + 1) {
      if (one) {
        prefetch_map(&params.x);
        prefetch_map(&params.x_scales);
        if (Shape::kSide) prefetch_map(&params.exact_x);
      }
      pdl_wait();
      if (one) feed_fp8_tokens(params, ring);
    }
    if (warp == kFp8Warps + 2 && one) feed_fp8_weight_scales(params, ring);
  } else {
    raise_registers<Shape::kConsumerRegisters>();
    consume_fp8(params, ring);
  }
  // The other block's copies and arrivals end before this block's shared memory does.
  if constexpr (Shape::kCluster > 1) cluster_sync();
}

}  // namespace sluice::cuda
