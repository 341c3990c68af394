#pragma once
// Instructions that only gdn_prefill uses.

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/wgmma_wide.cuh"

namespace sluice::cuda {

/// Two fp32 rounded to f16, the first in the low half.
__device__ __forceinline__ uint32_t f16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ float2 widen_f16_pair(uint32_t pair) {
  float2 x;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(x.x), "=f"(x.y)
      : "r"(pair));
  return x;
}

/// Stay where they are written, so that they are on their way before pdl_wait().
__device__ __forceinline__ float load_state(const float* from) {
  float x;
  asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
  return x;
}
__device__ __forceinline__ uint4 load_early(const void* from) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// Like load_matrices() of mma.cuh, each matrix transposed.
__device__ __forceinline__ void load_transposed(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}
/// The way back.
__device__ __forceinline__ void store_transposed(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                                                 uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// 8 or 16 bytes of shared memory.
__device__ __forceinline__ float2 load_floats(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ void load_floats(float* to, uint32_t from) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void store_floats(uint32_t to, const float* from) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}

/// A named barrier, passed without waiting for the others.
__device__ __forceinline__ void pass_barrier(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// Shared memory that the block's threads wrote to global memory: each of them calls shared_written(), then comes a barrier, then one thread stores, and waits before
/// the memory is written again or given back.
__device__ __forceinline__ void shared_written() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void store_bulk(void* to, uint32_t from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void store_bulk_wait() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/// sums (+)= A B for 128 n, two swizzled tiles `apart` bytes from one another, the first at descriptor `tile`. Transposed: the tiles' rows are k (a k16 step adds kRowsStep) and
/// their columns n, else the rows are n, the tiles lie behind one another, and a step adds kTileStep.
constexpr uint32_t kRowsStep = 16 * 128 >> 4;
template <bool kAdds, int kTransposedApart>
__device__ __forceinline__ void multiply_tiles(float (&d)[64], const uint32_t (&a)[4],
                                               uint32_t tile) {
  constexpr bool kTransposed = kTransposedApart > 0;
  constexpr uint64_t kLayout = uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 |
                               uint64_t{(kTransposed ? kTransposedApart : 1024) >> 4} << 16;
#define SLUICE_MULTIPLY(outputs)                                                      \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" SLUICE_SUMS128 \
               "}, " SLUICE_OPS128 ", %69, 1, 1, %70;"                                \
               : outputs                                                              \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(kLayout | tile),     \
                 "n"(kAdds ? 1 : 0), "n"(kTransposed ? 1 : 0))
  if constexpr (kAdds) {
    SLUICE_MULTIPLY(SLUICE_D64("+f", d, 0));
  } else {
    SLUICE_MULTIPLY(SLUICE_D64("=f", d, 0));
  }
#undef SLUICE_MULTIPLY
}
/// sums (+)= A B for kCount n of a block column of a triangle (gdn_prefill_layout.cuh) at descriptor `column`.
template <int kCount, bool kAdds>
__device__ __forceinline__ void multiply_column(float (&d)[kCount / 2], const uint32_t (&a)[4],
                                                uint32_t column) {
  constexpr uint64_t kLayout = uint64_t{256 >> 4} << 32 | uint64_t{128 >> 4} << 16;
  static_assert(kCount % 16 == 0 && kCount <= 64 && (kAdds || kCount >= 48));
  if constexpr (kCount == 64 && !kAdds) {
    SLUICE_WGMMA(64, 0, "=f", kLayout | column);
  } else if constexpr (kCount == 64) {
    SLUICE_WGMMA(64, 1, "+f", kLayout | column);
  } else if constexpr (kCount == 48 && !kAdds) {
    SLUICE_WGMMA(48, 0, "=f", kLayout | column);
  } else if constexpr (kCount == 48) {
    SLUICE_WGMMA(48, 1, "+f", kLayout | column);
  } else if constexpr (kCount == 32) {
    SLUICE_WGMMA(32, 1, "+f", kLayout | column);
  } else {
    SLUICE_WGMMA(16, 1, "+f", kLayout | column);
  }
}

/// A tile at `address` for these, the same in all lanes.
__device__ __forceinline__ uint32_t tile_at(uint32_t address) {
  return __shfl_sync(0xffffffffu, (address & 0x3ffff) >> 4, 0);
}

}  // namespace sluice::cuda
