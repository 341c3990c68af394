#pragma once

#include "ops/op_table.h"

namespace sluice {

/// The CUDA backend on GPU 0. kUnsupported says what is missing.
Result<const OpTable*> cuda_ops();

}  // namespace sluice
