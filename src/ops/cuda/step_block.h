#pragma once
// The step's rows, brought to the front of the scratch arena.

#include <cstdint>

#include "ops/op_context.h"
#include "ops/row_run.h"

namespace sluice::cuda {

/// Bytes for steps of up to `num_rows_max` rows in sessions of up to `context_max` tokens.
size_t step_block_bytes(int64_t num_rows_max, int64_t context_max);
void begin_step(const StepRows& rows, OpContext& context);
void end_step(OpContext& context);

}  // namespace sluice::cuda
