#pragma once
// A consumer warp's way through a slice of a tile: packed weights from shared memory become A fragments, wgmma adds them up.
//
// The sums stand in units of the current block's scale: at each 128 k they are multiplied by (previous scale / this scale), behind the last block by its scale. So
// no second set of sums is needed, and up to 256 tokens fit. Above 128 tokens a warpgroup's tile is two pieces: one is rescaled while the other multiplies.

#include "ops/cuda/gemm_fragments.cuh"
#include "ops/cuda/gemm_prefill_ring.cuh"
#include "ops/cuda/wgmma_wide.cuh"

namespace sluice::cuda {

/// A consumer warp, its places in the rings and its sums.
template <int kTokens, int kBlocks>
struct PrefillWarp {
  using Shape = PrefillShape<kTokens, kBlocks>;
  static constexpr int kPieces = Shape::kPieces;
  static constexpr int kSums = Shape::kPieceTokens / 2;
  /// FP8 words two halves ahead and tokens one: with few tokens every wait shows. A tile in two pieces has too few stages of weights for it, f16 too many words.
  static constexpr bool kReadsAhead = kPieces == 1;

  PrefillRing<Shape> ring;
  RingCursor<Shape::kTokenStages> tokens;
  RingCursor<Shape::kWeightStages> weights;
  uint32_t slices_done = 0;
  uint32_t words;        // of the lane in stage 0: 16 bytes of each 512 of the warp's low slot
  uint32_t high_behind;  // from there to its high slot
  uint32_t used_weights, used_tokens;  // barriers of stages that have been read
  uint32_t tile;                       // descriptor of the next half's tokens
  HalfFragments fragments[2];          // halves of a block
  HalfWords<true> ahead;               // words of the half behind the next
  float sums[kPieces][kSums];
  float low_factor, high_factor;  // of the next block, behind the last one of the sums
  uint32_t nothing;               // see widen_half()
  uint32_t table;                 // where the next factors lie

  __device__ PrefillWarp(PrefillRing<Shape> ring, bool is_pair) : ring(ring) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    words = ring.weights(0) + (is_pair ? warp : 2 * warp) * 1024 + threadIdx.x % kWarp * 16;
    high_behind = is_pair ? kTileGroups / 2 * 1024 : 1024;
  }

  __device__ __forceinline__ void load_factors() {
    low_factor = load_shared(table);
    high_factor = load_shared(table + kScaleRowBytes);
    table += 4;
  }

  __device__ __forceinline__ void scale(float (&piece)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      piece[i] = __fmul_rn(piece[i], i % 4 < 2 ? low_factor : high_factor);
    }
  }

  __device__ __forceinline__ void give_back_tokens() {
    if (threadIdx.x % kWarp != 0) return;
    if constexpr (kBlocks == 1) {
      barrier_arrive(used_tokens);
    } else {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) barrier_arrive_at(used_tokens, i);
    }
  }

  /// Waits for the next tokens and the next stage of weights, as far as they are `wanted`. Both are asked before either is waited for.
  __device__ __forceinline__ void await_stages(bool tokens_wanted, bool weights_wanted) {
    const uint32_t tokens_full = ring.tokens_full(tokens.slot);
    const uint32_t weights_full = ring.weights_full(weights.slot);
    const bool has_tokens = !tokens_wanted || barrier_try(tokens_full, tokens.parity);
    const bool has_weights = !weights_wanted || barrier_try(weights_full, weights.parity);
    if (!has_tokens) barrier_wait(tokens_full, tokens.parity);
    if (!has_weights) barrier_wait(weights_full, weights.parity);
  }

  /// Words of half j of a block. Where they are read ahead, await_stages() has waited for them.
  template <bool kFp8>
  __device__ __forceinline__ HalfWords<kFp8> read_half(int j) {
    if (!(kFp8 && kReadsAhead) && (!kFp8 || j == 0)) {
      barrier_wait(ring.weights_full(weights.slot), weights.parity);
    }
    const uint32_t from = words + weights.slot * kPrefillWeightBytes;
    HalfWords<kFp8> half;
#pragma unroll
    for (int i = 0; i < (kFp8 ? 1 : 2); ++i) {
      const uint32_t at = from + (kFp8 ? j : i) * 512;
      half.low[i] = load_words_16(at);
      half.high[i] = load_words_16(at + high_behind);
    }
    if (!kFp8 || j == 1) {
      used_weights = ring.weights_empty(weights.slot);
      weights.advance();
    }
    return half;
  }

  /// Half j of a block, whose fragments and tokens are ready; behind it the next half's are, unless it is the last of all (`more`: another block follows). In flight
  /// behind it are this half's wgmmas at most; before it, if it is `first` of a run, none.
  template <bool kFp8>
  __device__ __forceinline__ void run_half(int j, bool first, bool more) {
    constexpr bool kAhead = kFp8 && kReadsAhead;
    const bool has_next = j == 0 || more;
    if constexpr (!kAhead) {
      barrier_wait(ring.tokens_full(tokens.slot), tokens.parity);
      tile = swizzled_tile(ring.tokens(tokens.slot));
    }
    constexpr uint32_t kPiece = Shape::kPieceTokens * 128 / 16;  // in descriptors
    pin(fragments[j].a);
    if (kFp8 && first) {
#pragma unroll
      for (int h = 0; h < kPieces; ++h) {
        scale(sums[h]);
        pin(sums[h]);
      }
    }
#pragma unroll
    for (int h = 0; h < kPieces; ++h) {
      if (kFp8 && j == 0 && !first) {
        wgmma_wait<kPieces - 1>();
        pin(sums[h]);
        scale(sums[h]);
        pin(sums[h]);
      }
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        Wgmma<Shape::kPieceTokens>::add(sums[h], fragments[j].a + 4 * s,
                                        tile + h * kPiece + s * kTileStep);
      }
      wgmma_commit();
    }
    // These fragments were the last of their stage.
    if ((!kFp8 || j == 1) && threadIdx.x % kWarp == 0) barrier_arrive(used_weights);
    const uint32_t used = ring.tokens_empty(tokens.slot);
    tokens.advance();
    HalfWords<kFp8> half;
    if constexpr (kAhead) {
      await_stages(has_next, j == 0 && more);
      if (has_next) tile = swizzled_tile(ring.tokens(tokens.slot));
    } else if (kFp8 && has_next) {
      half = read_half<kFp8>(1 - j);
    }
    if (kFp8 && j == 0) load_factors();
    wgmma_wait<kPieces>();
    if (!first) give_back_tokens();
    pin(fragments[1 - j].a);
    if constexpr (kAhead) {
      if (has_next) widen_half<kFp8>(ahead, nothing, fragments[1 - j]);
      if (more) ahead = read_half<kFp8>(j);
    } else {
      if (!kFp8 && has_next) half = read_half<kFp8>(1 - j);
      if (has_next) widen_half<kFp8>(half, nothing, fragments[1 - j]);
    }
    used_tokens = used;
  }

  /// kRun blocks, at the end of which nothing is in flight: ptxas runs wgmmas one by one that are in flight around a loop's end (C7514).
  template <bool kFp8, int kRun>
  __device__ __forceinline__ void run_blocks(int blocks_left) {
#pragma unroll
    for (int u = 0; u < kRun; ++u) {
      const bool more = u + 1 < kRun || blocks_left > kRun;
      run_half<kFp8>(0, u == 0, more);
      run_half<kFp8>(1, false, more);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int h = 0; h < kPieces; ++h) pin(sums[h]);
    give_back_tokens();
  }

  template <bool kFp8>
  __device__ __forceinline__ void run_all(int num_blocks) {
    if constexpr (kFp8 && kReadsAhead) {
      await_stages(true, true);
      tile = swizzled_tile(ring.tokens(tokens.slot));
      widen_half<kFp8>(read_half<kFp8>(0), nothing, fragments[0]);
      ahead = read_half<kFp8>(1);
    } else {
      widen_half<kFp8>(read_half<kFp8>(0), nothing, fragments[0]);
    }
    constexpr int kRun = kFp8 ? 4 : 2;
    int left = num_blocks;
#pragma unroll 1
    for (; left >= kRun; left -= kRun) run_blocks<kFp8, kRun>(left);
#pragma unroll 1
    for (; left > 0; --left) run_blocks<kFp8, 1>(left);
  }

  /// Sums blocks [first, end) of a tile, as they are.
  __device__ __forceinline__ void run_slice(const PrefillParams& params, GemmPlace place, int first,
                                            int end) {
#pragma unroll
    for (int h = 0; h < kPieces; ++h) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[h][i] = 0.0f;
    }
    const GemmKernelSegment& segment = params.segments[place.segment];
    static_assert(Shape::kScaleStages == 2);
    barrier_wait(ring.scales_full(slices_done % 2), slices_done / 2 % 2);
    if (segment.scales != nullptr) {
      table = ring.scales(slices_done % 2);
      load_factors();
      run_all<true>(end - first);
    } else {
      load_row_factors(params, place);
      nothing = fresh_thread_index() >> 20;
      run_all<false>(end - first);
    }
#pragma unroll
    for (int h = 0; h < kPieces; ++h) scale(sums[h]);
    // Behind the last use of what was read: an arrival may overtake a read that is under way.
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.scales_empty(slices_done % 2));
    ++slices_done;
  }

  __device__ __forceinline__ void load_row_factors(const PrefillParams& params, GemmPlace place) {
    const int thread = static_cast<int>(fresh_thread_index());
    const int warp = thread / kWarp;
    const int row = thread % kWarp / 4;
    const GemmKernelSegment& segment = params.segments[place.segment];
    const int last = segment.num_out - 1;
    const int tile_row = place.tile * (params.is_pair ? kTileRows / 2 : kTileRows) + row;
    const int low = tile_row + warp * (params.is_pair ? kRowGroup : 2 * kRowGroup);
    const int high = params.is_pair ? low : low + kRowGroup;
    const float* high_factors =
        params.is_pair ? params.segments[1].row_factors : segment.row_factors;
    low_factor = __ldg(segment.row_factors + min(low, last));
    high_factor = __ldg(high_factors + min(high, last));
  }
};

}  // namespace sluice::cuda
