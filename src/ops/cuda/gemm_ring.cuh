#pragma once
// Two rings in shared memory, of weight stages and of token stages, each fed by one warp and read by every consumer warp.

#include "ops/cuda/gemm_sm90.cuh"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda {

/// Two consumer warpgroups, then one of which warp 0 feeds weights and warp 1 tokens.
inline constexpr int kGemmConsumers = 256;
inline constexpr int kGemmThreads = kGemmConsumers + 128;
inline constexpr int kFirstFeederWarp = kGemmConsumers / 32;
/// A weight stage: 16 slots of 1,024 bytes: 128 k of FP8, 64 k of f16.
inline constexpr int kWeightStageBytes = kTileGroups * 1024;

/// Addresses. Shape: kWeightStages, kTokenStages, kTokenStageBytes, kAsideBytes (for the consumers' own use).
template <typename Shape>
struct GemmRings {
  static constexpr int kTokenBegin = Shape::kWeightStages * kWeightStageBytes;
  static constexpr int kAsideBegin = kTokenBegin + Shape::kTokenStages * Shape::kTokenStageBytes;
  static constexpr int kBarrierBegin = kAsideBegin + Shape::kAsideBytes;
  static constexpr int kStages = Shape::kWeightStages + Shape::kTokenStages;
  static constexpr int kSharedBytes = 1024 + kBarrierBegin + 16 * kStages;

  uint32_t base;  // 1,024-byte aligned: the swizzle goes by the address

  __device__ uint32_t weights(int slot) const { return base + slot * kWeightStageBytes; }
  __device__ uint32_t tokens(int slot) const {
    return base + kTokenBegin + slot * Shape::kTokenStageBytes;
  }
  __device__ uint32_t aside(int group) const {
    return base + kAsideBegin + group * (Shape::kAsideBytes / 2);
  }
  __device__ uint32_t full(int stage) const { return base + kBarrierBegin + 16 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8; }
  __device__ uint32_t weights_full(int slot) const { return full(slot); }
  __device__ uint32_t weights_empty(int slot) const { return empty(slot); }
  __device__ uint32_t tokens_full(int slot) const { return full(Shape::kWeightStages + slot); }
  __device__ uint32_t tokens_empty(int slot) const { return empty(Shape::kWeightStages + slot); }

  /// By one thread, before the block's first barrier.
  __device__ void init() const {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full(i), 1);
      barrier_init(empty(i), kFirstFeederWarp);
    }
    barrier_init_fence();
  }
};

/// A consumer warp and its places in the rings. It has two groups of 8 rows: slots low and high = low + kHighBehind.
template <typename Shape, bool kPair>
struct GemmWarp {
  static constexpr int kHighBehind = kPair ? kTileGroups / 2 : 1;
  static constexpr int kSlotBytes = kWeightStageBytes / kTileGroups;

  GemmRings<Shape> rings;
  uint32_t words;  // of the calling lane in stage 0: 16 bytes of each 512 of its low slot
  RingCursor<Shape::kWeightStages> weights;
  RingCursor<Shape::kTokenStages> tokens;

  __device__ explicit GemmWarp(GemmRings<Shape> rings)
      : rings(rings),
        words(rings.base + static_cast<uint32_t>(low()) * kSlotBytes + threadIdx.x % 32 * 16) {}
  __device__ static int low() { return static_cast<int>(threadIdx.x) / 32 * (kPair ? 1 : 2); }
};

/// Weight stages in flight while the ring fills for the first time, which is while kernels ahead still run: what those read would queue behind more.
inline constexpr int kFirstStagesInFlight = 4;

/// One thread: the weights of a tile's blocks. `num_first` counts the stages of the first round.
template <bool kPair, typename Shape>
__device__ __forceinline__ void feed_weights(const GemmParams& params, GemmRings<Shape> rings,
                                             RingCursor<Shape::kWeightStages>& at, GemmPlace place,
                                             int first_block, int end_block, int* num_first) {
  const CUtensorMap* low = &params.weights[place.segment];
  const CUtensorMap* high = kPair ? &params.weights[1] : low;
  const int low_group = place.tile * (kPair ? kTileGroups / 2 : kTileGroups);
  const int high_group = low_group + (kPair ? 0 : kTileGroups / 2);
  const int per_block = params.segments[place.segment].scales != nullptr ? 1 : 2;
  for (int i = first_block * per_block; i < end_block * per_block; ++i) {
    barrier_wait(rings.weights_empty(at.slot), at.parity ^ 1);
    const uint32_t full = rings.weights_full(at.slot);
    const uint32_t to = rings.weights(at.slot);
    if (*num_first < Shape::kWeightStages) {
      const int before = *num_first - kFirstStagesInFlight;
      if (before >= 0) barrier_wait(rings.weights_full(before), 0);
      ++*num_first;
    }
    barrier_expect(full, kWeightStageBytes);
    load_tile_2d(to, low, i * 256, low_group, full, kEvictFirst);
    load_tile_2d(to + kWeightStageBytes / 2, high, i * 256, high_group, full, kEvictFirst);
    at.advance();
  }
}

}  // namespace sluice::cuda
