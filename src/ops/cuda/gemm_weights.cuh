#pragma once
// Packed weights from a stage of the ring to the A fragments of wgmma, and the scales that go with them.

#include "ops/cuda/gemm_ring.cuh"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {

struct Words {
  uint32_t x, y, z, w;
};
__device__ __forceinline__ Words load_words(uint32_t address) {
  Words v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

/// Two e4m3 values (of the low or high half of `word`) as f16.
__device__ __forceinline__ uint32_t widen_e4m3x2(uint32_t word, bool high) {
  uint32_t out;
  const uint16_t half = static_cast<uint16_t>(high ? word >> 16 : word);
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(half));
  return out;
}

/// A move that ptxas cannot see through: what it merges, it moves between two wgmmas, and then runs them one by one (C7513).
__device__ __forceinline__ uint32_t copied(uint32_t x) {
  return x ^ (threadIdx.x >> 20);
}

/// Quarters (two k16 steps) of two blocks beside each other, as A fragments.
struct QuarterPair {
  uint32_t a[16];
};

/// 16 bytes of each of a lane's two rows in each of two blocks: half a block of FP8, a quarter of f16.
struct RawPair {
  Words low[2], high[2];
};

/// Reads what holds quarter `quarter` of the warp's next kBlocks blocks, waiting for it.
template <bool kFp8, int kBlocks, typename Warp>
__device__ __forceinline__ void read_words(Warp& warp, int quarter, RawPair& raw) {
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    const auto at = warp.weights.ahead(kFp8 ? j : 2 * j + quarter / 2);
    if (quarter == 0 || (!kFp8 && quarter == 2)) {
      barrier_wait(warp.rings.weights_full(at.slot), at.parity);
    }
    const uint32_t from =
        warp.words + at.slot * kWeightStageBytes + (kFp8 ? quarter / 2 : quarter % 2) * 512;
    raw.low[j] = load_words(from);
    raw.high[j] = load_words(from + Warp::kHighBehind * Warp::kSlotBytes);
  }
}

/// All words of kBlocks blocks have been read.
template <bool kFp8, int kBlocks, typename Warp>
__device__ __forceinline__ void give_back(Warp& warp) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < (kFp8 ? kBlocks : 2 * kBlocks); ++i) {
    if (threadIdx.x % kWarp == 0) barrier_arrive(warp.rings.weights_empty(warp.weights.slot));
    warp.weights.advance();
  }
}

template <bool kFp8>
__device__ __forceinline__ void widen_quarter(const RawPair& raw, int quarter, QuarterPair& out) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const uint32_t low[4] = {raw.low[j].x, raw.low[j].y, raw.low[j].z, raw.low[j].w};
    const uint32_t high[4] = {raw.high[j].x, raw.high[j].y, raw.high[j].z, raw.high[j].w};
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      uint32_t* a = out.a + 8 * j + 4 * s;
      if constexpr (kFp8) {
        const int word = quarter % 2 * 2 + s;
        a[0] = widen_e4m3x2(low[word], false);
        a[1] = widen_e4m3x2(high[word], false);
        a[2] = widen_e4m3x2(low[word], true);
        a[3] = widen_e4m3x2(high[word], true);
      } else {
        a[0] = copied(low[2 * s]);
        a[1] = copied(high[2 * s]);
        a[2] = copied(low[2 * s + 1]);
        a[3] = copied(high[2 * s + 1]);
      }
    }
  }
}

/// 16 bytes of each of a lane's two rows.
struct HalfWords {
  Words low, high;
};

/// Reads the warp's next 1,024 bytes a slot, waiting for them: a block of FP8, half a block of f16. Gives the stage back.
template <typename Warp>
__device__ __forceinline__ void read_block(Warp& warp, HalfWords (&raw)[2]) {
  const int slot = warp.weights.slot;
  barrier_wait(warp.rings.weights_full(slot), warp.weights.parity);
  const uint32_t from = warp.words + slot * kWeightStageBytes;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    raw[i].low = load_words(from + i * 512);
    raw[i].high = load_words(from + i * 512 + Warp::kHighBehind * Warp::kSlotBytes);
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(warp.rings.weights_empty(slot));
  warp.weights.advance();
}

/// A of k16 step `step` of a block.
template <bool kFp8>
__device__ __forceinline__ void step_fragments(const HalfWords (&raw)[2], int step,
                                               uint32_t (&a)[4]) {
  const HalfWords& half = raw[kFp8 ? step / 4 : step / 2 % 2];
  const uint32_t low[4] = {half.low.x, half.low.y, half.low.z, half.low.w};
  const uint32_t high[4] = {half.high.x, half.high.y, half.high.z, half.high.w};
  if constexpr (kFp8) {
    a[0] = widen_e4m3x2(low[step % 4], false);
    a[1] = widen_e4m3x2(high[step % 4], false);
    a[2] = widen_e4m3x2(low[step % 4], true);
    a[3] = widen_e4m3x2(high[step % 4], true);
  } else {
    a[0] = low[step % 2 * 2];
    a[1] = high[step % 2 * 2];
    a[2] = low[step % 2 * 2 + 1];
    a[3] = high[step % 2 * 2 + 1];
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
