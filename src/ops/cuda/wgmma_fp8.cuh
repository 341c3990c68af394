#pragma once
// wgmma of sm_90a for e4m3: A (64 tokens) and B (128 or 192 weight rows) in shared memory, fp32 sums.
//
// A: rows of 128 k = 128 bytes, 128-byte swizzle. B: [groups][2 blocks][8 rows][64 k], 64-byte swizzle: packed weights (packed.h) as a tensor copy leaves them.
// Lane 4 r + t of warp w holds sums[4 j + 0, 1] = token 16 w + r, weight rows 8 j + 2 t + 0, 1, and sums[4 j + 2, 3] = the same of token 16 w + r + 8.

#include "ops/cuda/wgmma.cuh"

namespace sluice::cuda {

/// Low word of the descriptor of a stage's tokens or of a piece of its weights, first step. The address must be the same in all lanes, and known to be: wgmma takes descriptors from
/// uniform registers.
__device__ __forceinline__ uint32_t fp8_descriptor(uint32_t address) {
  constexpr uint32_t kUnused = 1u << 16;
  return kUnused | (address & 0x3ffff) >> 4;
}
/// From k32 step 0 to step `step` (0 .. 3) of 128 k.
__device__ __forceinline__ uint32_t fp8_tokens_step(int step) {
  return static_cast<uint32_t>(step * 32 >> 4);
}
__device__ __forceinline__ uint32_t fp8_weights_step(int step) {
  return static_cast<uint32_t>((step / 2 * 512 + step % 2 * 32) >> 4);
}
__device__ __forceinline__ uint64_t fp8_tokens_descriptor(uint32_t low) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | low;
}
__device__ __forceinline__ uint64_t fp8_weights_descriptor(uint32_t low) {
  constexpr uint64_t kSwizzle64 = uint64_t{2} << 62;
  constexpr uint64_t kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle64 | kEightRows | low;
}

#define SLUICE_D96(c, d) SLUICE_D64(c, d, 0), SLUICE_D32(c, d, 64)

// One instruction: n weight rows, placeholders of its n / 2 sums, of the descriptors and of whether it adds.
#define SLUICE_FP8_WGMMA(n, sums, operands, flag, outputs)                                  \
  asm volatile(                                                                             \
      "{\n.reg .pred p;\nsetp.ne.b32 p, " flag ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n \
      "k32.f32.e4m3.e4m3 {" sums "}, " operands ", p, 1, 1;\n}"                             \
      : outputs                                                                             \
      : "l"(fp8_tokens_descriptor(tokens)), "l"(fp8_weights_descriptor(weights)), "r"(adds))

/// sums = (adds ? sums : 0) + A B for kRows weight rows; operands as low words of descriptors. `adds` is a value even where it never changes: or the compiler sees that the old sums are
/// not needed, and keeps those of two groups at once in registers that it does not have.
template <int kRows>
struct Fp8Wgmma;

#define SLUICE_SUMS128                                                                     \
  SLUICE_P0 ", " SLUICE_P8 ", " SLUICE_P16 ", " SLUICE_P24 ", " SLUICE_P32 ", " SLUICE_P40 \
            ", " SLUICE_P48 ", " SLUICE_P56
template <>
struct Fp8Wgmma<128> {
  static __device__ __forceinline__ void run(float (&d)[64], uint32_t tokens, uint32_t weights,
                                             int adds) {
    SLUICE_FP8_WGMMA(128, SLUICE_SUMS128, "%64, %65", "%66", SLUICE_D64("+f", d, 0));
  }
};

#define SLUICE_SUMS192 \
  SLUICE_SUMS128 ", " SLUICE_P64 ", " SLUICE_P72 ", " SLUICE_P80 ", " SLUICE_P88
template <>
struct Fp8Wgmma<192> {
  static __device__ __forceinline__ void run(float (&d)[96], uint32_t tokens, uint32_t weights,
                                             int adds) {
    SLUICE_FP8_WGMMA(192, SLUICE_SUMS192, "%96, %97", "%98", SLUICE_D96("+f", d));
  }
};

/// sums += A B of 64 weight rows, both f16, 16 of k a step; descriptors as above.
__device__ __forceinline__ void add_f16_product(float (&d)[32], uint32_t tokens, uint32_t weights) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" SLUICE_SUMS64
               "}, %32, %33, 1, 1, 1, 0, 0;"
               : SLUICE_D32("+f", d, 0)
               : "l"(fp8_tokens_descriptor(tokens)), "l"(fp8_weights_descriptor(weights)));
}

}  // namespace sluice::cuda
