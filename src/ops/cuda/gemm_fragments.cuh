#pragma once
// Half a block (64 k) of packed weights, from shared memory to the A fragments of wgmma.

#include "ops/cuda/fragments.cuh"

namespace sluice::cuda {

struct Words16 {
  uint32_t v[4];
};
__device__ __forceinline__ Words16 load_words_16(uint32_t address) {
  Words16 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.v[0]), "=r"(w.v[1]), "=r"(w.v[2]), "=r"(w.v[3])
               : "r"(address)
               : "memory");
  return w;
}

/// Four steps of four registers.
struct HalfFragments {
  uint32_t a[16];
};

/// As it lies in shared memory: 16 (FP8) or 32 bytes of each of the lane's two rows.
template <bool kFp8>
struct HalfWords {
  Words16 low[kFp8 ? 1 : 2], high[kFp8 ? 1 : 2];
};

/// `nothing` is 0, unknown to ptxas: what it merges, it moves between two wgmmas, and then runs them one by one (C7513).
template <bool kFp8>
__device__ __forceinline__ void widen_half(const HalfWords<kFp8>& half, uint32_t nothing,
                                           HalfFragments& out) {
  if constexpr (kFp8) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      widen_fp8(half.low[0].v[s], &out.a[4 * s], &out.a[4 * s + 2]);
      widen_fp8(half.high[0].v[s], &out.a[4 * s + 1], &out.a[4 * s + 3]);
    }
  } else {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        out.a[4 * s + 2 * i] = half.low[s / 2].v[s % 2 * 2 + i] ^ nothing;
        out.a[4 * s + 2 * i + 1] = half.high[s / 2].v[s % 2 * 2 + i] ^ nothing;
      }
    }
  }
}

}  // namespace sluice::cuda
