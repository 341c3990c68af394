#pragma once
// wgmma of sm_90a with A (64 rows of weights) in registers and B (tokens) in shared memory: f16 operands, fp32 sums.
//
// A warpgroup's warp w owns rows 16 w .. 16 w + 15. Lane 4 r + t holds of A the pairs k = 2 t and 2 t + 8 of row r (a[0], a[2]) and of row
// r + 8 (a[1], a[3]), and of the sums d[4 j + 0, 1] = row r, tokens 8 j + 2 t + 0, 1, and d[4 j + 2, 3] = the same of row r + 8.

#include <cstdint>

namespace sluice::cuda {

/// Orders the registers written so far before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Until at most kPending groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Registers a thread of this warpgroup holds from here on.
template <int kRegisters>
__device__ __forceinline__ void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Keeps the compiler from moving uses of `values` across this place: a wgmma in flight reads or writes them behind its back.
template <int kCount>
__device__ __forceinline__ void pin(uint32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// Low word of the descriptor of a B tile at `address` (1,024-byte aligned): rows of 64 k = 128 bytes, 128-byte swizzle. A k16 step adds kTileStep, 8 rows 64.
/// Taken from one lane, so that the compiler knows it to be the same in all and keeps it where wgmma wants it.
__device__ __forceinline__ uint32_t swizzled_tile(uint32_t address) {
  constexpr uint32_t kUnused = 1u << 16;
  return __shfl_sync(0xffffffffu, kUnused | (address & 0x3ffff) >> 4, 0);
}
constexpr uint32_t kTileStep = 32 >> 4;

__device__ __forceinline__ uint64_t tile_descriptor(uint32_t low) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | low;
}

#define SLUICE_P0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SLUICE_P8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define SLUICE_P16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define SLUICE_P24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define SLUICE_P32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define SLUICE_P40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define SLUICE_P48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define SLUICE_P56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define SLUICE_P64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define SLUICE_P72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define SLUICE_P80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define SLUICE_P88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define SLUICE_P96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define SLUICE_P104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define SLUICE_P112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define SLUICE_P120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define SLUICE_D8(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define SLUICE_D16(c, d, i) SLUICE_D8(c, d, i), SLUICE_D8(c, d, i + 8)
#define SLUICE_D32(c, d, i) SLUICE_D16(c, d, i), SLUICE_D16(c, d, i + 16)
#define SLUICE_D64(c, d, i) SLUICE_D32(c, d, i), SLUICE_D32(c, d, i + 32)

// Of each n (tokens): placeholders of its n / 2 sums, of A and the descriptor, and the sums `d` themselves with constraint c.
#define SLUICE_SUMS16 SLUICE_P0
#define SLUICE_OPS16 "{%8, %9, %10, %11}, %12"
#define SLUICE_OUT16(c) SLUICE_D8(c, d, 0)
#define SLUICE_SUMS32 SLUICE_P0 ", " SLUICE_P8
#define SLUICE_OPS32 "{%16, %17, %18, %19}, %20"
#define SLUICE_OUT32(c) SLUICE_D16(c, d, 0)
#define SLUICE_SUMS64 SLUICE_P0 ", " SLUICE_P8 ", " SLUICE_P16 ", " SLUICE_P24
#define SLUICE_OPS64 "{%32, %33, %34, %35}, %36"
#define SLUICE_OUT64(c) SLUICE_D32(c, d, 0)

// One instruction of n tokens: whether it adds (1, "+f") or begins (0, "=f"), and B's descriptor.
#define SLUICE_WGMMA(n, adds, c, descriptor)                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" SLUICE_SUMS##n \
               "}, " SLUICE_OPS##n ", " #adds ", 1, 1, 0;"                               \
               : SLUICE_OUT##n(c)                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor))

/// sums (+)= A B for kTokens tokens; a: four registers of A, tile: a descriptor's low word.
template <int kTokens>
struct Wgmma;

#define SLUICE_WGMMA_BEGIN(n)                                                       \
  static __device__ __forceinline__ void begin(float(&d)[n / 2], const uint32_t* a, \
                                               uint32_t tile) {                     \
    SLUICE_WGMMA(n, 0, "=f", tile_descriptor(tile));                                \
  }
#define SLUICE_WGMMA_ADD(n)                                                                        \
  static __device__ __forceinline__ void add(float(&d)[n / 2], const uint32_t* a, uint32_t tile) { \
    SLUICE_WGMMA(n, 1, "+f", tile_descriptor(tile));                                               \
  }

template <>
struct Wgmma<16> {
  SLUICE_WGMMA_BEGIN(16)
  SLUICE_WGMMA_ADD(16)
};
template <>
struct Wgmma<32> {
  SLUICE_WGMMA_BEGIN(32)
  SLUICE_WGMMA_ADD(32)
};
template <>
struct Wgmma<64> {
  SLUICE_WGMMA_BEGIN(64)
  SLUICE_WGMMA_ADD(64)
};

}  // namespace sluice::cuda
