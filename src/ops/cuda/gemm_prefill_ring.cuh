#pragma once
// Shared memory of gemm_prefill: rings of weight and token stages and of scale tables, each fed by one warp; staging for the way out.

#include "ops/cuda/gemm_out.cuh"
#include "ops/cuda/gemm_prefill_params.cuh"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda {

/// Two consumer warpgroups of 64 slots each, then one of which warp 0 feeds weights, warp 1 tokens, warp 2 scales.
inline constexpr int kPrefillConsumers = 2 * kGroupThreads;
inline constexpr int kPrefillThreads = kPrefillConsumers + 128;
inline constexpr int kPrefillFeederWarp = kPrefillConsumers / kWarp;
/// 16 slots of 1,024 bytes: 128 k of FP8, 64 k of f16.
inline constexpr int kPrefillWeightBytes = kTileGroups * 1024;
/// Most tokens that a warpgroup stages at a time, 128 bytes each.
inline constexpr int kStagedTokens = 64;
inline constexpr int kStagingBytes = kStagedTokens * 128;
/// Most 128-blocks of K.
inline constexpr int kScaleRowBytes = (kGemmPrefillBlocksMax + 2) * 4;

/// A tile of 128 slots by kTokens tokens, in clusters of kBlocks that load each token stage once.
template <int kTokens, int kBlocks>
struct PrefillShape {
  static constexpr int kPieces = kTokens > 128 ? 2 : 1;
  static constexpr int kPieceTokens = kTokens / kPieces;
  static constexpr int kTokenBytes = kTokens * 128;  // 64 k
  static constexpr int kTokenStages = kTokens == 256   ? 5
                                      : kTokens == 208 ? 6
                                      : kTokens >= 104 ? 7
                                      : kTokens >= 72  ? 8
                                                       : 10;
  static constexpr int kWeightStages = kTokens > 128    ? 3
                                       : kTokens >= 104 ? 6
                                       : kTokens >= 72  ? 7
                                       : kTokens >= 48  ? 8
                                                        : 10;
  static constexpr int kScaleStages = 2;
  static constexpr int kRings = kTokenStages + kWeightStages + kScaleStages;

  static constexpr int kWeightBegin = kTokenStages * kTokenBytes;
  static constexpr int kStagingBegin = kWeightBegin + kWeightStages * kPrefillWeightBytes;
  static constexpr int kScaleBegin = kStagingBegin + 2 * kStagingBytes;
  static constexpr int kBarrierBegin = kScaleBegin + kScaleStages * 2 * kScaleRowBytes;
  static constexpr int kSharedBytes = kBarrierBegin + 16 * kRings;
  static_assert(kPieceTokens % 8 == 0, "a piece begins at a whole swizzle pattern");
  static_assert(kTokens / kBlocks % 8 == 0, "a block's share of a stage likewise");
  static_assert(kSharedBytes <= 227 * 1024, "what a block may have");
};

__device__ __forceinline__ float load_shared(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared(uint32_t address, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}

/// Addresses; base is 1,024-byte aligned, since the swizzle goes by the address.
template <typename Shape>
struct PrefillRing {
  uint32_t base;

  __device__ uint32_t tokens(int slot) const { return base + slot * Shape::kTokenBytes; }
  __device__ uint32_t weights(int slot) const {
    return base + Shape::kWeightBegin + slot * kPrefillWeightBytes;
  }
  __device__ uint32_t staging(int group) const {
    return base + Shape::kStagingBegin + group * kStagingBytes;
  }
  __device__ uint32_t scales(int slot) const {
    return base + Shape::kScaleBegin + slot * 2 * kScaleRowBytes;
  }
  __device__ uint32_t full(int stage) const { return base + Shape::kBarrierBegin + 16 * stage; }
  __device__ uint32_t tokens_full(int slot) const { return full(slot); }
  __device__ uint32_t tokens_empty(int slot) const { return full(slot) + 8; }
  __device__ uint32_t weights_full(int slot) const { return full(Shape::kTokenStages + slot); }
  __device__ uint32_t weights_empty(int slot) const { return weights_full(slot) + 8; }
  __device__ uint32_t scales_full(int slot) const {
    return full(Shape::kTokenStages + Shape::kWeightStages + slot);
  }
  __device__ uint32_t scales_empty(int slot) const { return scales_full(slot) + 8; }

  /// By one thread, before the first barrier of the block or cluster of num_blocks.
  __device__ void init(int num_blocks) const {
    for (int i = 0; i < Shape::kRings; ++i) {
      const bool is_tokens = i < Shape::kTokenStages;
      barrier_init(full(i), 1);
      barrier_init(full(i) + 8, kPrefillFeederWarp * (is_tokens ? num_blocks : 1));
    }
    barrier_init_fence();
  }
};

/// One thread: the weights of this block's row tiles.
template <int kTokens, int kBlocks>
__device__ void feed_weights(const PrefillParams& params,
                             PrefillRing<PrefillShape<kTokens, kBlocks>> ring, int rank) {
  RingCursor<PrefillShape<kTokens, kBlocks>::kWeightStages> at;
  for_slices<kTokens, kBlocks>(params, rank, [&](const PrefillUnit& unit, int, int first, int end) {
    const GemmPlace place = prefill_place(params, unit.tile);
    const CUtensorMap* low = &params.weights[place.segment];
    const CUtensorMap* high = params.is_pair ? &params.weights[1] : low;
    const int low_group = place.tile * (params.is_pair ? kTileGroups / 2 : kTileGroups);
    const int high_group = low_group + (params.is_pair ? 0 : kTileGroups / 2);
    const int per_block = params.segments[place.segment].scales != nullptr ? 1 : 2;
    for (int i = first * per_block; i < end * per_block; ++i) {
      barrier_wait(ring.weights_empty(at.slot), at.parity ^ 1);
      const uint32_t full = ring.weights_full(at.slot);
      const uint32_t to = ring.weights(at.slot);
      barrier_expect(full, kPrefillWeightBytes);
      load_tile_2d(to, low, i * 256, low_group, full, params.weights_hint);
      load_tile_2d(to + kPrefillWeightBytes / 2, high, i * 256, high_group, full,
                   params.weights_hint);
      at.advance();
    }
  });
}

/// One thread: this block's share of the cluster's tokens, to all its blocks.
template <int kTokens, int kBlocks>
__device__ void feed_tokens(const PrefillParams& params,
                            PrefillRing<PrefillShape<kTokens, kBlocks>> ring, int rank) {
  using Shape = PrefillShape<kTokens, kBlocks>;
  constexpr int kShare = kTokens / kBlocks;
  RingCursor<Shape::kTokenStages> at;
  for_slices<kTokens, kBlocks>(params, rank, [&](const PrefillUnit& unit, int, int first, int end) {
    for (int i = 2 * first; i < 2 * end; ++i) {
      barrier_wait(ring.tokens_empty(at.slot), at.parity ^ 1);
      const uint32_t full = ring.tokens_full(at.slot);
      barrier_expect(full, Shape::kTokenBytes);
      const uint32_t to = ring.tokens(at.slot) + rank * kShare * 128;
      const int row = unit.token_first + rank * kShare;
      if constexpr (kBlocks == 1) {
        load_tile_2d(to, &params.x, i * 64, row, full);
      } else {
        load_tile_2d_shared(to, &params.x, i * 64, row, full, (1 << kBlocks) - 1);
      }
      at.advance();
    }
  });
}

/// A block without a scale of its own: small enough to leave nothing of it, large enough for the sums of its neighbours in its units.
constexpr float kScaleOfNothing = 0x1p-100f;
__device__ __forceinline__ float divisible_scale(float scale) {
  return scale != 0.0f ? scale : kScaleOfNothing;
}

/// One warp: tables of scales, of the tile's low and high slots. Entry i takes sums in units of block i - 1 to those of block i; the one behind the last block
/// takes them to what they are.
template <int kTokens, int kBlocks>
__device__ void feed_scales(const PrefillParams& params,
                            PrefillRing<PrefillShape<kTokens, kBlocks>> ring, int rank) {
  RingCursor<PrefillShape<kTokens, kBlocks>::kScaleStages> at;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for_slices<kTokens, kBlocks>(params, rank, [&](const PrefillUnit& unit, int, int first, int end) {
    const GemmPlace place = prefill_place(params, unit.tile);
    const GemmKernelSegment& segment = params.segments[place.segment];
    const float* low = segment.scales;
    barrier_wait(ring.scales_empty(at.slot), at.parity ^ 1);
    if (low != nullptr) {
      const int last_row = (segment.num_out - 1) / kScaleBlock;
      const int row = params.is_pair ? place.tile * (kTileRows / 2) / kScaleBlock : place.tile;
      const int64_t from = static_cast<int64_t>(min(row, last_row)) * params.num_blocks + first;
      const float* high = params.is_pair ? params.segments[1].scales : low;
#pragma unroll 1
      for (int half = 0; half < 2; ++half) {
        const float* scales = (half == 0 ? low : high) + from;
        const uint32_t to = ring.scales(at.slot) + half * kScaleRowBytes;
#pragma unroll 1
        for (int i = lane; i <= end - first; i += kWarp) {
          const float before = i > 0 ? divisible_scale(__ldg(scales + i - 1)) : 1.0f;
          const float here = i > 0 && i < end - first ? divisible_scale(__ldg(scales + i)) : 1.0f;
          store_shared(to + i * 4, __fdiv_rn(before, here));
        }
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.scales_full(at.slot));
    at.advance();
  });
}

}  // namespace sluice::cuda
