#pragma once
// The projections of a step, by the kernels that suit the GPU and the rows. Decode, up to 64 rows: wgmma where the GPU has it, mma.sync elsewhere and for few rows,
// all in the order of packed.h, so a row's bits are the same whichever runs. Prompts, any number of rows: wgmma in an order of its own (gemm_prefill.h), with the same
// bits at every number of rows; or, in the FP8 mode, of activations as e4m3 (gemm_fp8.h), where weights are FP8.

#include <cuda_runtime_api.h>

#include <span>

#include "base/bf16.h"
#include "ops/cuda/fp8_operands.h"
#include "ops/cuda/packed.h"

namespace sluice::cuda {

inline constexpr int kProjectionRowsMax = 64;

/// A projection's input: operands (packed.h), rows behind one another, or values that are made into operands first, with their RMSNorm (ops/norm.h) when
/// norm_weight is not null.
struct ProjectionInput {
  int num_rows;
  int num_cols;
  /// Operands; with values not null a buffer for them.
  uint16_t* operands;
  const bf16* values = nullptr;
  int64_t stride = 0;  // of the values, elements
  const float* norm_weight = nullptr;
  float eps = 0.0f;
  /// Of the values: row m is row row_list[m], zeros where that is -1; null: row m.
  const int32_t* row_list = nullptr;
  /// By the prompts' kernels, where has_prefill_kernels(). Else num_rows is at most kProjectionRowsMax.
  bool is_prefill = false;
  /// The FP8 mode of prompts: a buffer for the operands as e4m3, which are made of the values or else of `operands`. No values: the exact mode.
  Fp8Operands fp8 = {};
  /// They are there already.
  bool has_fp8 = false;
};

struct ProjectionOutput {
  PackedWeight weight;
  bf16* out;
  int64_t stride;
};

/// What launches of one stream share. Tickets are zero before the first one.
struct ProjectionScratch {
  float* partials;
  int* tickets;
  int* range_flag;
};
size_t projection_partial_bytes();
size_t projection_ticket_bytes();

/// out = rb(x W^T) for up to four outputs of one input.
cudaError_t project(const ProjectionInput& x, std::span<const ProjectionOutput> outputs,
                    const ProjectionScratch& scratch, cudaStream_t stream);
/// out = rb(out + rb(x W^T)).
cudaError_t project_residual(const ProjectionInput& x, const ProjectionOutput& output,
                             const ProjectionScratch& scratch, cudaStream_t stream);
/// The MLP's first half as the operands of its second, [num_rows, gate.num_out], and as values where those are wanted.
struct GateUpOutput {
  PackedWeight gate, up;
  uint16_t* operands;
  bf16* values = nullptr;
  int64_t stride = 0;  // of the values, elements
  /// FP8 mode: they come here instead, unless values are wanted.
  Fp8Operands fp8 = {};
};
/// Are the MLP's halves multiplied in the FP8 mode, so that the output is `fp8`?
bool gates_in_fp8(const ProjectionInput& x, const GateUpOutput& output);
cudaError_t project_gate_up(const ProjectionInput& x, const GateUpOutput& output,
                            const ProjectionScratch& scratch, cudaStream_t stream);

/// The mma.sync kernels although the GPU has wgmma.
void use_portable_projections(bool portable);

/// Whether this GPU has the prompts' kernels, and was not told to be portable.
bool has_prefill_kernels();

}  // namespace sluice::cuda
