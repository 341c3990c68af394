#pragma once
// Projections of a prompt's rows on sm_90a: Y[M, N] = X[M, K] W[N, K]^T by wgmma, exact mode: W as packed (ops/cuda/packed.h), X f16 operands, fp32 sums.
//
// The order of sums belongs to a row of W and to what it is launched with, never to M: K in order, in units of the current 128-block's scale; where a tile of W
// is split, K is num_slices equal slices, each from zero, added in turn. So a row of Y has the same bits in any company, for every M >= 1. It is not decode's
// order (packed.h): all rows of a prompt take this kernel, however short a piece of it is.
//
// Plain structs and pointers only: nvcc's host pass cannot read base/status.h.

#include "ops/cuda/gemm_sm90.h"

namespace sluice::cuda {

/// Blocks of 128 of K that it takes: their scales lie in shared memory.
inline constexpr int kGemmPrefillBlocksMax = 158;
/// What the workspace's partials hold for launch_gemm_prefill(); tickets as for the skinny kernels (kGemmTickets). Both may be shared with those.
inline constexpr int64_t kGemmPrefillPartialBytes = 416ll * 128 * 256 * 4;

/// `gemm` as in gemm_sm90.h, and
///   num_rows   at least 1; rows beyond 64 are what it is made for
///   epilogue   kStore, kResidual or kGateUp (num_out a multiple of 64); kStoreFp32 is refused
///   out        any alignment and stride; 16-byte aligned with strides of 8 elements is the fast way
///   operand    16-byte aligned
///   workspace  kGemmPrefillPartialBytes; tickets are zero before and after
/// kGateUp writes `operand`, and the values to segment 0's `out` unless that is null; range_flag is set where f16 cannot hold a value.
/// A split belongs to the segments of a launch: the same weights launched beside others may take another order of sums.
/// Programmatic launch: reads weights and scales before pdl_wait(), x and everything else behind it. Safe to capture.
/// Errors: cudaErrorInvalidValue for shapes it does not take, cudaErrorNotSupported without a driver that encodes tensor maps.
cudaError_t launch_gemm_prefill(const Gemm& gemm, cudaStream_t stream);

/// A tile of 128 rows of W by `tokens` rows of X; `blocks` neighbours share what they load of X. launch_gemm_prefill() chooses one by the shape.
struct PrefillTile {
  int tokens;  // 32, 48, 64, 72, 88, 104, 128, 160, 176, 208, 256
  int blocks;  // 1; of 256 tokens also 2
};
/// For tests and measurements: with this tile. Every tile gives the same bits.
cudaError_t launch_gemm_prefill_tile(const Gemm& gemm, const PrefillTile& tile,
                                     cudaStream_t stream);

}  // namespace sluice::cuda
