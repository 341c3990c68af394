#pragma once

#include "ops/op_table.h"

namespace sluice {

/// The CUDA backend on GPU 0. `is_portable`: without wgmma where the GPU has it; the last call decides. kUnsupported says what is missing.
Result<const OpTable*> cuda_ops(bool is_portable = false);

}  // namespace sluice
