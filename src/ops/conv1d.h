#pragma once

#include <span>

#include "base/view.h"
#include "ops/op_context.h"
#include "ops/row_run.h"

namespace sluice {

/// Causal depthwise conv of width 4 over time, then SiLU, both rounded:
///   c[t] = rb( sum_{j=0..3} w[ch, j] * x[t - 3 + j] ),  out[t] = rb( silu(c[t]) ),  x before
///   position 0 is 0.
/// The sum is fp32, taps in the order j = 0, 1, 2, 3.
///
/// x, out [num_rows, num_channels] bf16, raw inputs (no overlap)
/// weight [num_channels, 4] fp32 holding the stored values
/// state  reads positions before each run's first row, then holds the run's newest inputs; with a
///        checkpoint_slot also those before the last multiple of kGdnChunk the run reaches
/// Promise: n rows in one call == n calls of one row, bit for bit. Runs are of different slots.
/// Follows: torch_causal_conv1d_update / Conv1d + silu, transformers.
struct Conv1dArgs {
  MatView<const bf16> x;
  std::span<const float> weight;
  std::span<const RowRun> runs;
  ConvLayerView state;
  MatView<bf16> out;
};

}  // namespace sluice
