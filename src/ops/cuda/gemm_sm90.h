#pragma once
// Projections of many rows on sm_90a: Y[M, N] = X[M, K] W[N, K]^T by wgmma, W packed (ops/cuda/packed.h), fp32 sums.
//
// X is an f16 operand: f16(x * 2^-4) in operand order, that is, within 64 k position 16 s + 2 t + i holds k = 32 (s / 2) + 8 t + 4 (s % 2) + i and
// position 16 s + 2 t + 8 + i the k two behind it (i = 0, 1; t = 0 .. 3; s = 0 .. 3).
//
// Plain structs and pointers only: nvcc's host pass cannot read base/status.h.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

inline constexpr int kGemmSegments = 4;
/// Most rows of the skinny regime, whose sums agree bit for bit with the one-row kernels (order: packed.h).
inline constexpr int kGemmSkinnyRows = 64;

enum class GemmEpilogue : int32_t {
  kStore,     // out = rb(y), bf16
  kResidual,  // out = rb(out + rb(y)), bf16, in place
  kGateUp,  // segments 0, 1 are gate and up: rb(rb(silu(rb(gate))) * rb(up)), to `operand` and, if not null, to segment 0's `out`
  kStoreFp32,  // out = y, fp32: gemm_fp8 alone, for tests
};

/// One projection of X.
struct GemmSegment {
  PackedWeight weight;
  void* out;           // [num_rows, num_out], natural order; 16-byte aligned is fast
  int64_t out_stride;  // elements; a multiple of 8 is fast
};

/// What launches of one stream share; they follow each other, so one is enough for all of them.
struct GemmWorkspace {
  float* partials;  // kGemmPartialBytes
  int* tickets;     // kGemmTickets, zero before the first launch; every launch leaves them zero
};
inline constexpr int64_t kGemmPartialBytes = 320ll * 128 * 64 * 4;
inline constexpr int kGemmTickets = 512;

struct Gemm {
  const void* x;     // f16 operand [num_rows, num_in], 16-byte aligned
  int64_t x_stride;  // elements, a multiple of 64
  int num_rows;      // 1 .. 64
  int num_in;        // a multiple of 128
  int num_segments;
  GemmSegment segments[kGemmSegments];
  GemmEpilogue epilogue;
  void* operand;           // kGateUp: f16 operand [num_rows, num_out]
  int64_t operand_stride;  // elements, a multiple of 64
  int* range_flag;         // kGateUp: set to 1 where f16 cannot hold a value
  GemmWorkspace workspace;
};

/// Programmatic launch: reads weights before pdl_wait(), x and everything else behind it. Safe to capture.
cudaError_t launch_gemm_skinny(const Gemm& gemm, cudaStream_t stream);

}  // namespace sluice::cuda
