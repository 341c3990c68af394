#pragma once
// What the blocks' kernels share between the launches of one caller.

#include "ops/cuda/projections.h"
#include "ops/op_table.h"

namespace sluice::cuda {

/// Operands of a projection's input, as f16 and, for prompts in the FP8 mode, as e4m3.
struct OperandBuffer {
  uint16_t* f16 = nullptr;
  size_t f16_bytes = 0;
  uint8_t* fp8_values = nullptr;  // null: not that mode
  float* fp8_scales = nullptr;

  /// For so many rows and columns.
  Fp8Operands fp8(int64_t num_rows, int64_t num_cols) const {
    return {fp8_values, num_cols, fp8_scales, fp8_scale_stride(num_rows)};
  }
  static int64_t fp8_scale_stride(int64_t num_rows) { return (num_rows + 3) / 4 * 4; }
};

/// Runs of a prompt's step; each may cost attention's scratch a tile more.
inline constexpr int kPrefillRunsMax = 16;
/// Chunks of a run that lie side by side in gdn_prefill's scratch; longer runs take turns.
inline constexpr int kGdnPrefillChunks = 64;

/// For decode's steps of up to kProjectionRowsMax rows, and for prompts' of any number. Launches follow one another, so one of each serves all layers.
class WorkMemory {
 public:
  WorkMemory() = default;
  static Result<WorkMemory> create(const OpDims& dims);

  float* partials = nullptr;   // of projections
  int* tickets = nullptr;      // of projections: zero between launches
  int* gdn_tickets = nullptr;  // of gdn_core: likewise
  OperandBuffer input;         // of a block's first projection
  OperandBuffer output;        // and of its last
  float* attention = nullptr;  // of attention_decode
  void* sampling = nullptr;    // of sample

  // Of prompts; none where has_prefill_kernels() is false.
  void* gdn_prefill = nullptr;
  void* attention_prefill = nullptr;
  size_t attention_prefill_bytes = 0;
  bool has_prefill() const { return gdn_prefill != nullptr; }

  /// Zeros in every operand, behind what the stream holds: padding rows keep what a bucket's larger step left there, and
  /// values out of range would raise the flag of steps that did not compute them.
  void clear_operands() const;

 private:
  Buffer buffer_;
};

}  // namespace sluice::cuda
