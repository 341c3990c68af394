#pragma once
// Activations as e4m3 operands with a scale for each row and 128 columns: what the FP8 mode of prefill multiplies block-FP8 weights with (gemm_fp8.h).
//
// Plain structs and pointers only: nvcc's host pass cannot read base/status.h.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/bf16.h"
#include "base/host_device.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

/// Where operand k of a row lies, in bytes. Inside 64 of K, bytes lie as a packed weight's do (packed.h): lane t's 16 bytes hold 8 t .. 8 t + 7, then 32 + 8 t .. 32 + 8 t + 7.
SLUICE_HOST_DEVICE constexpr int fp8_operand_place(int k) {
  return (k & ~63) + (k >> 3 & 3) * 16 + (k >> 5 & 1) * 8 + (k & 7);
}

/// [num_rows, num_cols] of e4m3.
///
///   scale = max(|x| over the row's 128 columns, 2^-64) / 448;  value = e4m3(x * (448 / max)), nearest even
///
/// What is not finite becomes NaN and raises the step's range flag.
struct Fp8Operands {
  /// Row m, column k at m stride + fp8_operand_place(k). 16-byte aligned; stride is in bytes, a multiple of 16.
  uint8_t* values;
  int64_t stride;
  /// [num_cols / 128, num_rows]: scale * 2^-kActivationShift, which the weights' scales undo. 16-byte aligned; the stride, from one 128 columns to the next, is in elements,
  /// a multiple of 4 and at least num_rows.
  float* scales;
  int64_t scale_stride;
};

/// Operands of [num_rows, num_cols] values: of the values themselves, or of their RMSNorm (ops/norm.h, with its roundings). The normed values are also stored where they are
/// wanted as they are or as f16 operands (packed.h): BF16 weights of the same input stay exact.
struct Fp8OperandsArgs {
  const bf16* values;
  int64_t stride;
  int num_rows, num_cols;    // num_cols % 128 == 0
  const float* norm_weight;  // null: no norm
  float eps;
  Fp8Operands to;
  uint16_t* f16_operands;  // null: not wanted
  bool f16_in_order;       // f16 in natural order: for gemm_fp8.h's exact_x
  bf16* normed;            // null: not wanted, nor to be had without a norm
  int64_t out_stride;      // elements, of both
  int* range_flag;         // set to 1 when a value is not finite, or too large for an f16 operand
};

/// Values begin at multiples of 16 bytes, strides are multiples of 8. Programmatic launch (pdl.cuh). cudaErrorInvalidValue for what it does not take: num_cols as above and, with a
/// norm, at most kNormedColumnsMax (skinny.h).
cudaError_t launch_fp8_operands(const Fp8OperandsArgs& args, cudaStream_t stream);

/// The same of values that lie as f16 operands (packed.h), which another kernel left: bit for bit what launch_fp8_operands makes of the bf16 values themselves,
/// if those were in f16's normal range.
struct Fp8RequantiseArgs {
  const uint16_t* operands;
  int64_t stride;  // elements, even
  int num_rows, num_cols;
  Fp8Operands to;
  int* range_flag;
};
cudaError_t launch_fp8_requantise(const Fp8RequantiseArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda
