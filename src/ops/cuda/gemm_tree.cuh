#pragma once
// The order of sums of packed.h, block by block, and the blocks' scales.

#include "ops/cuda/gemm_fragments.cuh"
#include "ops/cuda/gemm_ring.cuh"

namespace sluice::cuda {

/// Bytes between a thread's quads of sums in shared memory, in its warpgroup's own place.
inline constexpr int kAsideStride = kGroupThreads * 16;

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

/// The tree of packed.h, fed block by block. kTotalAside: the total, touched three times a tile, lies in shared memory.
template <int kSums, bool kTotalAside>
struct SumTree {
  float part[kSums], group[kSums], total[kTotalAside ? 1 : kSums];
  uint32_t aside;          // of the calling thread
  int part_idx, part_end;  // the open part and the block behind it
  int num_blocks;          // of K

  __device__ __forceinline__ void begin(int first_block, int num_blocks_of_k) {
    num_blocks = num_blocks_of_k;
#pragma unroll
    for (int i = 0; i < kSums; ++i) part[i] = group[i] = 0.0f;
    put_total(group);
    open_part(first_block);
  }
  /// The part that `block` belongs to: the first that ends behind it. Without a loop: wgmmas may be in flight around it.
  __device__ __forceinline__ void open_part(int block) {
    part_idx = (kNumParts * (block + 1) + num_blocks - 1) / num_blocks - 1;
    part_end = part_begin(part_idx + 1, num_blocks);
  }
  /// chain: the eight wgmmas of `block`.
  __device__ __forceinline__ void add(int block, const float (&chain)[kSums], float low_scale,
                                      float high_scale) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      part[i] = __fmaf_rn(chain[i], i % 4 < 2 ? low_scale : high_scale, part[i]);
    }
    if (block + 1 == part_end) close_part();
  }
  __device__ __forceinline__ void close_part() {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      group[i] = __fadd_rn(group[i], part[i]);
      part[i] = 0.0f;
    }
    if (part_end == num_blocks) return;
    const int closed = part_idx;
    open_part(part_end);
    if (closed / 3 != part_idx / 3) close_group();
  }
  __device__ __forceinline__ void close_group() {
    float sums[kSums];
    get_total(sums);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sums[i] = __fadd_rn(sums[i], group[i]);
      group[i] = 0.0f;
    }
    put_total(sums);
  }
  __device__ __forceinline__ void get_total(float (&sums)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      if constexpr (kTotalAside) {
        const Words16 words = load_words_16(aside + i / 4 * kAsideStride);
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i + j] = __uint_as_float(words.v[j]);
      } else {
        for (int j = i; j < i + 4; ++j) sums[j] = total[j];
      }
    }
  }
  __device__ __forceinline__ void put_total(const float (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      if constexpr (kTotalAside) {
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(aside + i / 4 * kAsideStride),
                     "f"(sums[i]), "f"(sums[i + 1]), "f"(sums[i + 2]), "f"(sums[i + 3])
                     : "memory");
      } else {
        for (int j = i; j < i + 4; ++j) total[j] = sums[j];
      }
    }
  }
};

}  // namespace sluice::cuda
