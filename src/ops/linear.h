#pragma once

#include <span>

#include "base/bf16.h"
#include "base/view.h"
#include "base/weight_view.h"
#include "ops/op_context.h"

namespace sluice {

/// One of several projections of the same input.
struct Projection {
  WeightView weight;
  MatView<bf16> out;  // [num_rows, weight.num_out]
};

/// out_i = rb( x W_i^T ) for every projection: fp32 accumulation, one rounding. Each weight streams
/// once, however many rows ride along. FP8: each 128-block of K sums in fp32 exact products of the
/// widened values; the block's scale multiplies that partial sum.
///
/// x [num_rows, num_in] bf16, any num_rows >= 1
/// Promise: a row's result has the same bits for any num_rows, thread count and set of sibling
/// projections. Pre: num_in % 32 == 0 for bf16 (check_shape refuses others), % 128 == 0 for FP8
/// (the loader refuses others); out does not overlap x.
struct LinearArgs {
  MatView<const bf16> x;
  std::span<const Projection> projections;
};

/// residual = rb( residual + rb( x W^T ) ), in place: a mixer's or MLP's last linear and its
/// residual add.
///
/// residual [num_rows, weight.num_out] bf16. Same promise as LinearArgs.
struct LinearResidualArgs {
  MatView<const bf16> x;
  WeightView weight;
  MatView<bf16> residual;
};

/// The MLP's first half: g = rb(x G^T), u = rb(x U^T), s = rb(silu(g)), out = rb(s * u).
///
/// out [num_rows, gate.num_out] bf16. Same promise as LinearArgs.
struct GateUpArgs {
  MatView<const bf16> x;
  WeightView gate;
  WeightView up;
  MatView<bf16> out;
};

}  // namespace sluice
