#pragma once
// Scales of a row tile's blocks, and packed weights as the A fragments of mma.sync.

#include "ops/cuda/gemm_fragments.cuh"
#include "ops/cuda/gemm_ring.cuh"

namespace sluice::cuda {

/// Reads the warp's next 1,024 bytes a slot, waiting for them: halves 0 and 1 of a block of FP8, or one half of a block of f16.
template <typename Warp>
__device__ __forceinline__ void read_stage(Warp& warp, HalfWords<false>& words) {
  const int slot = warp.weights.slot;
  barrier_wait(warp.rings.weights_full(slot), warp.weights.parity);
  const uint32_t from = warp.words + slot * kWeightStageBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    words.low[i] = load_words_16(from + i * 512);
    words.high[i] = load_words_16(from + i * 512 + Warp::kHighBehind * Warp::kSlotBytes);
  }
}

/// Gives back what read_stage() read, behind the last use of it: an arrival may overtake a read that is under way.
template <typename Warp>
__device__ __forceinline__ void give_back_stage(Warp& warp) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(warp.rings.weights_empty(warp.weights.slot));
  warp.weights.advance();
}

/// A of k16 step `step` of a block.
template <bool kFp8>
__device__ __forceinline__ void step_fragments(const HalfWords<false>& words, int step,
                                               uint32_t (&a)[4]) {
  const int i = kFp8 ? step / 4 : step / 2 % 2;
  const Words16& low = words.low[i];
  const Words16& high = words.high[i];
  if constexpr (kFp8) {
    widen_fp8(low.v[step % 4], &a[0], &a[2]);
    widen_fp8(high.v[step % 4], &a[1], &a[3]);
  } else {
    a[0] = low.v[step % 2 * 2];
    a[1] = high.v[step % 2 * 2];
    a[2] = low.v[step % 2 * 2 + 1];
    a[3] = high.v[step % 2 * 2 + 1];
  }
}

/// Scales of a run of blocks, 32 at a time across the lanes, the next 32 on their way.
struct ScaleRow {
  const float* scales;  // of the first block
  int count;
  float current, ahead;

  __device__ __forceinline__ void begin(const float* first, int num_blocks) {
    scales = first;
    count = num_blocks;
    current = fetch(0);
    ahead = fetch(kWarp);
  }
  __device__ __forceinline__ float fetch(int first) const {
    const int i = first + static_cast<int>(threadIdx.x) % kWarp;
    return i < count ? __ldg(scales + i) : 0.0f;
  }
  /// Of the run's block i; called for each in order.
  __device__ __forceinline__ float at(int i) {
    if (i > 0 && i % kWarp == 0) {
      current = ahead;
      ahead = fetch(i + kWarp);
    }
    return __shfl_sync(0xffffffffu, current, i % kWarp);
  }
};

}  // namespace sluice::cuda
