#pragma once

#include "ops/op_table.h"

namespace sluice {

/// The CUDA backend on GPU 0. `is_portable`: without wgmma where the GPU has it; the last call decides. kUnsupported says what is missing.
Result<const OpTable*> cuda_ops(bool is_portable = false);

/// Has the table that cuda_ops gave last kernels for steps of prompts (StepRows::is_prefill)? Pre: it gave one.
bool cuda_has_prefill();

}  // namespace sluice
