#pragma once
// The FP8 mode of prefill on sm_90a: Y[M, N] = X[M, K] W[N, K]^T with X quantised to e4m3 (fp8_operands.h) and W block FP8, packed as for decode (packed.h).
//
// Order of sums: the products of each 128 of K are summed by the tensor cores, as they do it (four steps of 32, from zero; Hopper keeps fewer than fp32's bits there); the sum of block b enters an fp32
// total as fma(sum, scale_x * scale_w, total), b = 0, 1, .. in order. Of gate and up, the tiles of 128 rows
// that are left over when all of 66 clusters have as many are summed in four slices of K, each from zero, whose totals are added in turn: where they are at most 16, behind at least 66. That belongs to
// the weights' shapes, never to M: a row's bits are its own.
//
// Plain structs and pointers only: nvcc's host pass cannot read base/status.h.

#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/gemm_sm90.h"

namespace sluice::cuda {

/// Most rows of an f16 weight that launch_gemm_fp8() takes beside those in FP8.
inline constexpr int kFp8SideRows = 64;

struct GemmFp8 {
  Fp8Operands x;
  int num_rows;  // at least 1
  int num_in;    // a multiple of 128
  int num_segments;
  /// Weights in FP8. Outputs 16-byte aligned, num_out and out_stride multiples of 8; kStoreFp32: any num_out and stride.
  /// Behind at least one of those, with kStore, weights in f16 of at most kFp8SideRows rows, num_out and out_stride even: multiplied by `exact_x`, all of K in order in the tensor cores' fp32.
  GemmSegment segments[kGemmSegments];
  /// [num_rows, num_in] f16(x * 2^-kActivationShift), in natural order: for weights in f16, else not read. 16-byte aligned, the stride in elements, a multiple of 8.
  const uint16_t* exact_x;
  int64_t exact_stride;
  GemmEpilogue epilogue;
  /// kGateUp: rb(rb(silu(rb(gate))) * rb(up)), quantised: operands of down_proj. num_out is a multiple of 128, segment outputs are not used. silu by ex2.approx and rcp.approx, before it is
  /// rounded to bf16; gates of -42 and less as if exp(-gate) were 2^60.
  Fp8Operands operand;
  int* range_flag;  // kGateUp: set to 1 where a value is not finite
  /// For kGateUp. partials: kGemmFp8PartialBytes; tickets as for the skinny kernels. Both may be shared with those.
  GemmWorkspace workspace;
};
inline constexpr int64_t kGemmFp8PartialBytes = 416ll * 128 * 256 * 4;

/// Programmatic launch: reads weights before pdl_wait(), x and everything else behind it. Safe to capture. cudaErrorInvalidValue for what it does not take.
cudaError_t launch_gemm_fp8(const GemmFp8& gemm, cudaStream_t stream);

}  // namespace sluice::cuda
