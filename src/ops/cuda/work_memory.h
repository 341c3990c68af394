#pragma once
// What the blocks' kernels share between the launches of one caller.

#include "ops/cuda/projections.h"
#include "ops/op_table.h"

namespace sluice::cuda {

/// For decode's steps of up to kProjectionRowsMax rows, and for prompts' of any number. Launches follow one another, so one of each serves all layers.
/// Chunks of a run that lie side by side in gdn_prefill's scratch; longer runs take turns.
inline constexpr int kGdnPrefillChunks = 64;

class WorkMemory {
 public:
  WorkMemory() = default;
  static Result<WorkMemory> create(const OpDims& dims);

  float* partials = nullptr;   // of projections
  int* tickets = nullptr;      // of projections: zero between launches
  int* gdn_tickets = nullptr;  // of gdn_core: likewise
  uint16_t* input = nullptr;   // operands of a block's first projection
  uint16_t* output = nullptr;  // and of its last
  size_t input_bytes = 0;
  size_t output_bytes = 0;
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
