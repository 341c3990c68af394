#pragma once
// Projections of 1 to 8 rows: every weight streams once from memory, at the memory's speed, and the rows ride along.
//
// Plain structs and pointers only, as launch.h says. Every call launches one kernel that obeys pdl.cuh. Sums are in the order of packed.h, so a row's bits
// are those of any other number of rows.

#include "ops/cuda/launch.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

inline constexpr int kSkinnyRowsMax = 8;
/// Columns of a row that can be normed.
inline constexpr int kNormedColumnsMax = 5 * kNumParts * kScaleBlock;

/// What a kernel multiplies the weights with: [num_rows, K].
struct SkinnyInput {
  /// As packed.h describes them, f16(x * 2^-kActivationShift) at operand_place(k); rows begin at multiples of 16 bytes. launch_operands makes them.
  const uint16_t* operands = nullptr;
  int64_t stride = 0;  // elements
  int num_rows = 0;
  /// Row m is row row_list[m]; null: row m.
  const int32_t* row_list = nullptr;
};

/// One of up to four projections of the same input.
struct SkinnyOutput {
  PackedWeight weight;
  bf16* out;
  int64_t stride;
};
inline constexpr int kSkinnyOutputsMax = 4;

/// What a launch must know of the machine, and where it reports.
struct SkinnyMachine {
  int num_sms;
  int smem_bytes;   // a block's limit
  int* range_flag;  // set to 1 when a value is too large for an operand
};

/// out = rb(x W^T) for each output. ops/linear.h LinearArgs.
cudaError_t launch_skinny_linear(const SkinnyMachine& machine, const SkinnyInput& input,
                                 const SkinnyOutput* outputs, int num_outputs, cudaStream_t stream);

/// residual = rb(residual + rb(x W^T)). ops/linear.h LinearResidualArgs.
cudaError_t launch_skinny_residual(const SkinnyMachine& machine, const SkinnyInput& input,
                                   const SkinnyOutput& output, cudaStream_t stream);

/// m = rb(rb(silu(rb(x G^T))) * rb(x U^T)), as values, as operands of the next projection, or both. ops/linear.h GateUpArgs.
struct SkinnyGateUp {
  PackedWeight gate, up;
  bf16* values;  // [num_rows, gate.num_out] or null
  int64_t values_stride;
  uint16_t* operands;  // the same shape, at operand_place(n), or null
  int64_t operands_stride;
};
cudaError_t launch_skinny_gate_up(const SkinnyMachine& machine, const SkinnyInput& input,
                                  const SkinnyGateUp& output, cudaStream_t stream);

/// Operands of [num_rows, num_cols] values: of the values themselves, or of their RMSNorm (ops/norm.h, with its roundings). Also stores the normed values
/// when `normed` is not null.
struct OperandsArgs {
  const bf16* values;
  int64_t stride;
  /// Row m is row row_list[m] of the values, zeros where that is -1; null: row m.
  const int32_t* row_list;
  int num_rows, num_cols;    // num_cols % 128 == 0
  const float* norm_weight;  // null: no norm
  float eps;
  uint16_t* operands;  // null: not wanted
  bf16* normed;        // null: not wanted
  int64_t out_stride;  // of both
  int* range_flag;
};
cudaError_t launch_operands(const OperandsArgs& args, cudaStream_t stream);

}  // namespace sluice::cuda
