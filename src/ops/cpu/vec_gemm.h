#pragma once
// Small fp32 products, operands in cache: C = A B or C += A B, row-major, by broadcast and fused
// multiply-add. An element of C is one chain over k in order, whatever the sizes: a row of C has the
// same bits beside any other rows.

#include "ops/cpu/vec.h"

namespace sluice::SLUICE_CPU_NS {

struct GemmOperand {
  const float* data;
  int64_t stride;
};

enum class GemmStart { kZero, kAdd };

#if defined(__AVX512F__)
inline constexpr int kGemmRows = 8;  // 8 x 2 sums of 32 registers
inline constexpr int kGemmVecs = 2;
#else
inline constexpr int kGemmRows = 4;  // 4 x 2 sums of 16 registers
inline constexpr int kGemmVecs = 1;
#endif

namespace internal {

template <int kVecs>
inline void gemm_tile(GemmOperand A, GemmOperand B, float* C, int64_t stride_c, int64_t depth,
                      GemmStart start) {
  Vec sums[kGemmRows][kVecs];
  for (int r = 0; r < kGemmRows; ++r) {
    for (int c = 0; c < kVecs; ++c) {
      sums[r][c] = start == GemmStart::kZero ? zero() : load(C + r * stride_c + c * kLanes);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    Vec b[kVecs];
    for (int c = 0; c < kVecs; ++c) b[c] = load(B.data + k * B.stride + c * kLanes);
    for (int r = 0; r < kGemmRows; ++r) {
      const Vec a = broadcast(A.data[r * A.stride + k]);
      for (int c = 0; c < kVecs; ++c) sums[r][c] = fma(a, b[c], sums[r][c]);
    }
  }
  for (int r = 0; r < kGemmRows; ++r) {
    for (int c = 0; c < kVecs; ++c) store(C + r * stride_c + c * kLanes, sums[r][c]);
  }
}

}  // namespace internal

/// `rows` is a multiple of 8, `cols` of kLanes. C does not overlap A or B.
inline void gemm(GemmOperand A, GemmOperand B, float* C, int64_t stride_c, int64_t rows,
                 int64_t cols, int64_t depth, GemmStart start) {
  int64_t c = 0;
  for (; c + kGemmVecs * kLanes <= cols; c += kGemmVecs * kLanes) {
    for (int64_t r = 0; r < rows; r += kGemmRows) {
      internal::gemm_tile<kGemmVecs>({A.data + r * A.stride, A.stride}, {B.data + c, B.stride},
                                     C + r * stride_c + c, stride_c, depth, start);
    }
  }
  for (; c < cols; c += kLanes) {
    for (int64_t r = 0; r < rows; r += kGemmRows) {
      internal::gemm_tile<1>({A.data + r * A.stride, A.stride}, {B.data + c, B.stride},
                             C + r * stride_c + c, stride_c, depth, start);
    }
  }
}

}  // namespace sluice::SLUICE_CPU_NS
