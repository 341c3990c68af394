#pragma once
// The skinny regime of gemm_sm90: up to 64 rows, bound by the bytes of the weights.
//
// A block takes row tiles of 128 slots or slices of their K. Two warpgroups of 64 slots each hold weights as A in registers, widened on the way; tokens are B in
// shared memory. One warp feeds a ring of weight stages, which fills before pdl_wait(), another a ring of token stages.
//
// Order of sums: packed.h. Per 128 k a chain of eight wgmmas from zero, times the scale into the part's sum; parts by the fixed tree, whoever sums them.

#include "ops/cuda/gemm_ring.cuh"
#include "ops/cuda/gemm_slices.cuh"
#include "ops/cuda/gemm_sm90.cuh"
#include "ops/cuda/gemm_tree.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/tma.cuh"
#include "ops/cuda/wgmma.cuh"

namespace sluice::cuda {

/// Rings and registers of a kernel for up to kTokens rows. A token stage is 128 k: two halves of 64 k.
template <int kTokens>
struct SkinnyShape {
  static constexpr int kHalfBytes = kTokens * 128;
  static constexpr int kTokenStageBytes = 2 * kHalfBytes;
  static constexpr int kWeightStages = kTokens == 64 ? 8 : kTokens == 32 ? 9 : 11;
  static constexpr int kTokenStages = kTokens == 16 ? 5 : 4;
  // From 32 tokens on sums leave no registers for the tree's total.
  static constexpr bool kTotalAside = kTokens >= 32;
  // The trees' totals, and then what is on its way out: 128 bytes a token and warpgroup, 32 tokens at least.
  static constexpr int kAsideBytes = kTotalAside ? kGemmConsumers * kTokens * 2 : 2 * 32 * 128;
  static_assert(kAsideBytes / 2 >= kTokens * 128);
  static constexpr bool kFinishedAlone = kTokens <= 32;
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

/// Where a warp stands in its unit: half a block (64 k) at a time. Blocks take two sets of sums in turn: one goes to the tree while the other multiplies. Weights are
/// widened one half, FP8 words read two halves ahead of their use.
template <int kTokens, bool kPair>
struct SkinnyState {
  using Shape = SkinnyShape<kTokens>;
  static constexpr int kSums = kTokens / 2;

  using Warp = GemmWarp<Shape, kPair>;

  Warp warp;
  ScaleRow low_scales, high_scales;
  SumTree<kSums, Shape::kTotalAside> tree;
  float chains[2][kSums];
  HalfFragments fragments[2];          // of the halves of a block
  HalfWords<true> ahead;               // of the half behind the next
  uint32_t used_weights, used_tokens;  // barriers of stages that have been read
  uint32_t tile;                       // descriptor of the block's tokens
  uint32_t nothing;                    // see widen_half()
  int block, first_block, end_block;   // the next one for the tree; of the unit

  __device__ explicit SkinnyState(GemmRings<Shape> rings)
      : warp(rings), nothing(threadIdx.x >> 20) {
    tree.aside = staging() + threadIdx.x % kGroupThreads * 16;
  }

  /// The warpgroup's own memory beside the rings.
  __device__ __forceinline__ uint32_t staging() const {
    return warp.rings.aside(static_cast<int>(fresh_thread_index()) / kGroupThreads);
  }

  /// The sums of the next block, to the tree.
  template <bool kFp8>
  __device__ __forceinline__ void add(const float (&chain)[kSums]) {
    float low = 1.0f;
    float high = 1.0f;
    if constexpr (kFp8) {
      low = low_scales.at(block - first_block);
      high = kPair ? high_scales.at(block - first_block) : low;
    }
    tree.add(block++, chain, low, high);
  }

  /// Begins a unit; false if it has no blocks.
  template <bool kFp8>
  __device__ __forceinline__ bool begin(const GemmParams& params, GemmUnit unit, GemmPlace place) {
    first_block = block = part_begin(unit.first_part, params.num_blocks);
    end_block = part_begin(unit.end_part, params.num_blocks);
    tree.begin(first_block, params.num_blocks);
    if (block == end_block) return false;
    if constexpr (kFp8) {
      const int row = kPair ? place.tile * (kTileRows / 2) / kScaleBlock : place.tile;
      const int64_t at = static_cast<int64_t>(row) * params.num_blocks + first_block;
      const int count = end_block - first_block;
      low_scales.begin(params.segments[place.segment].scales + at, count);
      if (kPair) high_scales.begin(params.segments[1].scales + at, count);
    }
    return true;
  }

  /// Waits for the next tokens and the next stage of weights, as far as they are wanted. Both are asked before either is waited for.
  __device__ __forceinline__ void await_stages(bool tokens_wanted, bool weights_wanted) {
    const uint32_t tokens_full = warp.rings.tokens_full(warp.tokens.slot);
    const uint32_t weights_full = warp.rings.weights_full(warp.weights.slot);
    const bool has_tokens = !tokens_wanted || barrier_try(tokens_full, warp.tokens.parity);
    const bool has_weights = !weights_wanted || barrier_try(weights_full, warp.weights.parity);
    if (!has_tokens) barrier_wait(tokens_full, warp.tokens.parity);
    if (!has_weights) barrier_wait(weights_full, warp.weights.parity);
    if (tokens_wanted) tile = swizzled_tile(warp.rings.tokens(warp.tokens.slot));
  }

  /// Words of half j of a block, for which await_stages() has waited.
  template <bool kFp8>
  __device__ __forceinline__ HalfWords<kFp8> read_half(int j) {
    const uint32_t from = warp.words + warp.weights.slot * kWeightStageBytes;
    HalfWords<kFp8> half;
#pragma unroll
    for (int i = 0; i < (kFp8 ? 1 : 2); ++i) {
      const uint32_t at = from + (kFp8 ? j : i) * 512;
      half.low[i] = load_words_16(at);
      half.high[i] = load_words_16(at + Warp::kHighBehind * Warp::kSlotBytes);
    }
    if (!kFp8 || j == 1) {
      used_weights = warp.rings.weights_empty(warp.weights.slot);
      warp.weights.advance();
    }
    return half;
  }

  __device__ __forceinline__ void give_back_tokens() {
    if (threadIdx.x % kWarp == 0) barrier_arrive(used_tokens);
  }

  /// Half j of a block, whose fragments and tokens are ready; behind it the next half's are, unless it is the last of all (`more`: another block follows). `first`:
  /// nothing is in flight before it; else `before`, the block's before it, goes to the tree meanwhile.
  template <bool kFp8>
  __device__ __forceinline__ void run_half(int j, float (&chain)[kSums], float (&before)[kSums],
                                           bool first, bool more) {
    constexpr uint32_t kHalf = Shape::kHalfBytes / 16;  // in descriptors
    const bool has_next = j == 0 || more;
    pin(fragments[j].a);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t at = tile + j * kHalf + s * kTileStep;
      if (j == 0 && s == 0) {
        Wgmma<kTokens>::begin(chain, fragments[j].a, at);
      } else {
        Wgmma<kTokens>::add(chain, fragments[j].a + 4 * s, at);
      }
    }
    wgmma_commit();
    // These fragments were the last of their stage.
    if ((!kFp8 || j == 1) && threadIdx.x % kWarp == 0) barrier_arrive(used_weights);
    if (j == 1) {
      used_tokens = warp.rings.tokens_empty(warp.tokens.slot);
      warp.tokens.advance();
    }
    await_stages(j == 1 && more, kFp8 ? j == 0 && more : has_next);
    wgmma_wait<1>();
    if (j == 0 && !first) give_back_tokens();
    pin(fragments[1 - j].a);
    if constexpr (kFp8) {
      if (has_next) widen_half<true>(ahead, nothing, fragments[1 - j]);
      if (more) ahead = read_half<true>(j);
    } else {
      if (has_next) widen_half<false>(read_half<false>(1 - j), nothing, fragments[1 - j]);
    }
    if (j == 0 && !first) {
      pin(before);
      add<kFp8>(before);
    }
  }

  /// kRun blocks, at the end of which nothing is in flight: ptxas runs wgmmas one by one that are in flight around a loop's end (C7514).
  template <bool kFp8, int kRun>
  __device__ __forceinline__ void run_blocks(int blocks_left) {
#pragma unroll
    for (int u = 0; u < kRun; ++u) {
      const bool more = u + 1 < kRun || blocks_left > kRun;
      run_half<kFp8>(0, chains[u % 2], chains[1 - u % 2], u == 0, more);
      run_half<kFp8>(1, chains[u % 2], chains[1 - u % 2], false, more);
    }
    wgmma_wait<0>();
    pin(chains[(kRun - 1) % 2]);
    give_back_tokens();
    add<kFp8>(chains[(kRun - 1) % 2]);
  }

  template <bool kFp8>
  __device__ __forceinline__ void run_all() {
    await_stages(true, true);
    widen_half<kFp8>(read_half<kFp8>(0), nothing, fragments[0]);
    if constexpr (kFp8) ahead = read_half<true>(1);
    constexpr int kRun = 2;
    int left = end_block - block;
#pragma unroll 1
    for (; left >= kRun; left -= kRun) run_blocks<kFp8, kRun>(left);
#pragma unroll 1
    for (; left > 0; --left) run_blocks<kFp8, 1>(left);
  }
};

/// tree.total = the tree's value over the unit's parts.
template <bool kFp8, int kTokens, bool kPair>
__device__ __forceinline__ void run_unit(const GemmParams& params, GemmUnit unit, GemmPlace place,
                                         SkinnyState<kTokens, kPair>& state) {
  if (!state.template begin<kFp8>(params, unit, place)) return;
  state.template run_all<kFp8>();
  state.tree.close_group();
}

template <int kTokens, bool kPair>
__device__ void consume(const GemmParams& params, GemmRings<SkinnyShape<kTokens>> rings,
                        int* last) {
  using Shape = SkinnyShape<kTokens>;
  SkinnyState<kTokens, kPair> state(rings);
  for_units(params, [&](GemmUnit unit) {
    const GemmPlace place = gemm_place(params, unit.tile);
    if (params.segments[place.segment].scales != nullptr) {
      run_unit<true>(params, unit, place, state);
    } else {
      run_unit<false>(params, unit, place, state);
    }
    float sums[kTokens / 2];
    state.tree.get_total(sums);
    if (unit.slice >= 0) {
      const int split = unit.tile - params.num_whole_tiles;
      leave_slice<kTokens>(params, split, unit.slice, sums);
      if constexpr (Shape::kFinishedAlone) {
        finish_if_last<kTokens, kPair>(params, place, state.staging(), split, last);
      } else if (threadIdx.x == 0) {
        leave_ticket(params.tickets + 2 * split);
      }
    } else {
      store_tile<kTokens, kPair>(params, place, state.staging(), sums);
    }
  });
  if constexpr (Shape::kFinishedAlone) return;
  const int num_split = (params.num_units - params.num_whole_tiles) / params.num_slices;
  for_shares(params, num_split, [&](int split, int share) {
    const GemmPlace place = gemm_place(params, params.num_whole_tiles + split);
    finish_share<kTokens, kPair>(params, place, state.staging(), split, share);
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
