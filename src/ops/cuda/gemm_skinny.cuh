#pragma once
// The skinny regime of gemm_sm90: up to 64 rows, bound by the bytes of the weights.
//
// A block takes row tiles of 128 slots or slices of their K. Two warpgroups of 64 slots each hold weights as A in registers, widened on the way; tokens are B in
// shared memory. One warp feeds a ring of weight stages, which fills before pdl_wait(), another a ring of token stages.
//
// Order of sums: packed.h. Per 128 k a chain of eight wgmmas from zero, times the scale into the part's sum; parts by the fixed tree, whoever sums them.

#include "ops/cuda/gemm_epilogue.cuh"
#include "ops/cuda/gemm_ring.cuh"
#include "ops/cuda/gemm_slices.cuh"
#include "ops/cuda/gemm_sm90.cuh"
#include "ops/cuda/gemm_tree.cuh"
#include "ops/cuda/gemm_weights.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/tma.cuh"
#include "ops/cuda/wgmma.cuh"

namespace sluice::cuda {

/// Up to here by mma.sync, each warp for itself; from here on by wgmma. The sums are the same, bit for bit.
inline constexpr int kWarpwiseTokens = 16;

/// Rings and registers of a kernel for up to kTokens rows. A token stage is 128 k: two halves of 64 k.
template <int kTokens>
struct SkinnyShape {
  static constexpr int kHalfBytes = kTokens * 128;
  static constexpr int kTokenStageBytes = 2 * kHalfBytes;
  static constexpr int kWeightStages = kTokens == 64 ? 8 : kTokens == 32 ? 9 : 11;
  static constexpr int kTokenStages = kTokens == 16 ? 5 : 4;
  // From 32 tokens on sums leave no registers for the tree's total.
  static constexpr bool kTotalAside = kTokens >= 32;
  static constexpr int kAsideBytes = kTotalAside ? kGemmConsumers * kTokens * 2 : 0;
  static constexpr bool kFinishedAlone = kTokens <= 32;
  // A wgmma of few tokens takes about as long as one of many, and holds the warps of its group together.
  static constexpr bool kWarpwise = kTokens <= kWarpwiseTokens;
  // Registers a thread: at the start, of a consumer, of a feeder. kGemmThreads x the first = what the block holds; up to 32 tokens a small kernel fits beside it.
  static constexpr int kStartRegisters = kTokens == 64 ? 168 : kTokens == 32 ? 120 : 104;
  static constexpr int kFeederRegisters = kTokens == 64 ? 40 : 24;
  static constexpr int kConsumerRegisters = kTokens == 64 ? 232 : kTokens == 32 ? 168 : 144;
  static_assert(kGemmConsumers * kConsumerRegisters + 128 * kFeederRegisters <=
                kGemmThreads * kStartRegisters);
};

/// This block's units, in order; f(unit).
template <typename F>
__device__ __forceinline__ void for_units(const GemmParams& params, F f) {
  const int num_split = params.num_units - params.num_whole_tiles;
  for (int u = blockIdx.x; u < params.num_units; u += gridDim.x) {
    f(gemm_unit(params, u, num_split));
  }
}

template <typename Shape, bool kPair>
__device__ void feed_all_weights(const GemmParams& params, GemmRings<Shape> rings) {
  RingCursor<Shape::kWeightStages> at;
  int num_first = 0;
  for_units(params, [&](GemmUnit unit) {
    feed_weights<kPair>(params, rings, at, gemm_place(params, unit.tile),
                        part_begin(unit.first_part, params.num_blocks),
                        part_begin(unit.end_part, params.num_blocks), &num_first);
  });
}

template <typename Shape>
__device__ void feed_all_tokens(const GemmParams& params, GemmRings<Shape> rings) {
  RingCursor<Shape::kTokenStages> at;
  for_units(params, [&](GemmUnit unit) {
    const int end = part_begin(unit.end_part, params.num_blocks);
    for (int i = part_begin(unit.first_part, params.num_blocks); i < end; ++i) {
      barrier_wait(rings.tokens_empty(at.slot), at.parity ^ 1);
      const uint32_t full = rings.tokens_full(at.slot);
      barrier_expect(full, Shape::kTokenStageBytes);
      load_tile_3d(rings.tokens(at.slot), &params.x, 0, 0, 2 * i, full);
      at.advance();
    }
  });
}

/// Where a warp stands in its unit. Two blocks are summed beside each other, chain by chain: a wgmma of few tokens takes its time, but the next one of another
/// chain need not wait for it. Weights are widened by quarters of a block, one behind the quarter in flight.
template <int kTokens, bool kPair>
struct SkinnyState {
  using Shape = SkinnyShape<kTokens>;
  static constexpr int kSums = kTokens / 2;

  GemmWarp<Shape, kPair> warp;
  ScaleRow low_scales, high_scales;
  SumTree<kSums, Shape::kTotalAside> tree;
  QuarterPair quarters[2];
  int block, first_block, end_block;
  uint32_t token_lane;  // mma.sync: the lane's row of 16 bytes in a token stage

  __device__ explicit SkinnyState(GemmRings<Shape> rings) : warp(rings) {
    tree.aside = rings.aside() + threadIdx.x * 16;
    token_lane = matrix_row(threadIdx.x % kWarp);
  }

  template <bool kFp8>
  __device__ __forceinline__ void add(int of_block, const float (&chain)[kSums]) {
    float low = 1.0f;
    float high = 1.0f;
    if constexpr (kFp8) {
      low = low_scales.at(of_block - first_block);
      high = kPair ? high_scales.at(of_block - first_block) : low;
    }
    tree.add(of_block, chain, low, high);
  }

  /// kBlocks (1 or 2) blocks, of which quarter 0 is widened and the words behind it are in `raw`; leaves the same of the blocks behind them. Nothing is in flight
  /// at the end: ptxas runs wgmmas one by one that are in flight around a loop's end (C7514).
  template <bool kFp8, int kBlocks>
  __device__ __forceinline__ void run_blocks(RawPair& raw) {
    constexpr uint32_t kHalf = Shape::kHalfBytes / 16;  // in descriptors
    float chains[2][kSums];
    uint32_t tokens[2];
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const auto at = warp.tokens.ahead(j);
      tokens[j] = swizzled_tile(warp.rings.tokens(at.slot));
      barrier_wait(warp.rings.tokens_full(at.slot), at.parity);
    }
    const int left = end_block - block - kBlocks;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      QuarterPair& now = quarters[q % 2];
      QuarterPair& next = quarters[1 - q % 2];
      pin(now.a);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 2; ++s) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          const uint32_t tile = tokens[j] + q / 2 * kHalf + (q % 2 * 2 + s) * kTileStep;
          const uint32_t* a = now.a + 8 * j + 4 * s;
          if (q == 0 && s == 0) {
            Wgmma<kTokens>::begin(chains[j], a, tile);
          } else {
            Wgmma<kTokens>::add(chains[j], a, tile);
          }
        }
      }
      wgmma_commit();
      if (q > 0) wgmma_wait<1>();
      pin(next.a);
      if (q < 3) {
        widen_quarter<kFp8>(raw, q + 1, next);
        constexpr int kLastRead = kFp8 ? 0 : 1;
        if (q <= kLastRead) read_words<kFp8, kBlocks>(warp, q + 2, raw);
        if (q == kLastRead) give_back<kFp8, kBlocks>(warp);
      } else if (left > 0) {
        widen_quarter<kFp8>(raw, 0, next);
        if (!kFp8) read_next<kFp8>(left, 1, raw);
      }
      if (q == 2 && left > 0) read_next<kFp8>(left, 0, raw);
    }
    wgmma_wait<0>();
    pin(quarters[1].a);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      pin(chains[j]);
      if (threadIdx.x % kWarp == 0) barrier_arrive(warp.rings.tokens_empty(warp.tokens.slot));
      warp.tokens.advance();
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) add<kFp8>(block + j, chains[j]);
    block += kBlocks;
  }

  template <bool kFp8>
  __device__ __forceinline__ void read_next(int left, int quarter, RawPair& raw) {
    if (left > 1) {
      read_words<kFp8, 2>(warp, quarter, raw);
    } else {
      read_words<kFp8, 1>(warp, quarter, raw);
    }
  }

  /// The next block by mma.sync, its words in `raw` (FP8: all, f16: half by half); leaves those of the block behind it.
  template <bool kFp8>
  __device__ __forceinline__ void run_block(HalfWords (&raw)[2]) {
    float chain[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) chain[i] = 0.0f;
    const uint32_t tokens = warp.rings.tokens(warp.tokens.slot) + token_lane;
    barrier_wait(warp.rings.tokens_full(warp.tokens.slot), warp.tokens.parity);
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      if (!kFp8 && s == 4) read_block(warp, raw);
      uint32_t a[4];
      step_fragments<kFp8>(raw, s, a);
#pragma unroll
      for (int j = 0; j < kTokens / 8; j += 2) {
        uint32_t b[4];
        load_matrices(b, (tokens ^ (s % 4 * 32)) + s / 4 * Shape::kHalfBytes + j * 1024);
        mma_16816(chain + 4 * j, a, b[0], b[1]);
        mma_16816(chain + 4 * j + 4, a, b[2], b[3]);
      }
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(warp.rings.tokens_empty(warp.tokens.slot));
    warp.tokens.advance();
    ++block;
    if (block < end_block) read_block(warp, raw);
    add<kFp8>(block - 1, chain);
  }

  /// tree.total = the tree's value over the unit's parts.
  template <bool kFp8>
  __device__ __forceinline__ void run_unit(const GemmParams& params, GemmUnit unit,
                                           GemmPlace place) {
    first_block = block = part_begin(unit.first_part, params.num_blocks);
    end_block = part_begin(unit.end_part, params.num_blocks);
    tree.begin(unit.first_part, first_block, params.num_blocks);
    if (block == end_block) return;
    if constexpr (kFp8) {
      const int row = kPair ? place.tile * (kTileRows / 2) / kScaleBlock : place.tile;
      const int64_t at = static_cast<int64_t>(row) * params.num_blocks + first_block;
      const int count = end_block - first_block;
      low_scales.begin(params.segments[place.segment].scales + at, count);
      if (kPair) high_scales.begin(params.segments[1].scales + at, count);
    }
    if constexpr (Shape::kWarpwise) {
      HalfWords raw[2];
      read_block(warp, raw);
#pragma unroll 1
      while (block < end_block) run_block<kFp8>(raw);
    } else {
      RawPair raw;
      read_next<kFp8>(end_block - block, 0, raw);
      widen_quarter<kFp8>(raw, 0, quarters[0]);
      if (!kFp8) read_next<kFp8>(end_block - block, 1, raw);
#pragma unroll 1
      while (block + 2 <= end_block) run_blocks<kFp8, 2>(raw);
      if (block < end_block) run_blocks<kFp8, 1>(raw);
    }
    tree.close_group();
  }
};

template <int kTokens, bool kPair>
__device__ void consume(const GemmParams& params, GemmRings<SkinnyShape<kTokens>> rings,
                        int* last) {
  using Shape = SkinnyShape<kTokens>;
  SkinnyState<kTokens, kPair> state(rings);
  for_units(params, [&](GemmUnit unit) {
    const GemmPlace place = gemm_place(params, unit.tile);
    if (params.segments[place.segment].scales != nullptr) {
      state.template run_unit<true>(params, unit, place);
    } else {
      state.template run_unit<false>(params, unit, place);
    }
    float sums[kTokens / 2];
    state.tree.get_total(sums);
    if (unit.slice >= 0) {
      const int split = unit.tile - params.num_whole_tiles;
      leave_slice<kTokens>(params, split, unit.slice, sums);
      if constexpr (Shape::kFinishedAlone) {
        finish_if_last<kTokens, kPair>(params, place, state.warp.low(), state.warp.high(), split,
                                       last);
      } else if (threadIdx.x == 0) {
        leave_ticket(params.tickets + 2 * split);
      }
    } else {
      store_tile<kPair, kTokens>(
          QuadOut<kPair>(params, place, state.warp.low(), state.warp.high(), 0), sums);
    }
  });
  if constexpr (Shape::kFinishedAlone) return;
  const int num_split = (params.num_units - params.num_whole_tiles) / params.num_slices;
  for_shares(params, num_split, [&](int split, int share) {
    const GemmPlace place = gemm_place(params, params.num_whole_tiles + split);
    finish_share<kTokens, kPair>(params, place, state.warp.low(), state.warp.high(), 0, split,
                                 share);
  });
}

template <int kTokens, bool kPair>
__global__ void __maxnreg__(SkinnyShape<kTokens>::kStartRegisters)
    gemm_skinny_kernel(const __grid_constant__ GemmParams params) {
  using Shape = SkinnyShape<kTokens>;
  extern __shared__ uint8_t shared[];
  __shared__ int last;
  pdl_launch();
  const GemmRings<Shape> rings{(shared_address(shared) + 1023) & ~1023u};
  if (threadIdx.x == 0) rings.init();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const bool one = threadIdx.x % kWarp == 0;
  if (warp >= kFirstFeederWarp) {
    lower_registers<Shape::kFeederRegisters>();
    if (warp == kFirstFeederWarp && one) feed_all_weights<Shape, kPair>(params, rings);
    if (warp == kFirstFeederWarp + 1) {
      pdl_wait();
      if (one) feed_all_tokens(params, rings);
    }
  } else {
    raise_registers<Shape::kConsumerRegisters>();
    pdl_wait();
    consume<kTokens, kPair>(params, rings, &last);
  }
}

}  // namespace sluice::cuda
