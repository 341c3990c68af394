#pragma once
// Floating-point operations that a prompt cannot do without, a multiply and an add counted as two: what times are set against, whatever form the kernels have.

#include "model/weights.h"

namespace sluice {

/// y = x W^T of so many rows.
int64_t product_flop(const WeightView& weight, int64_t num_rows);
/// The projections of all layers, without the head.
int64_t projection_flop(const ModelWeights& weights, int64_t num_rows);

/// Of one layer: q k^T and weights times v for the positions that each row sees, num_rows rows from `position` on. Half of a square where nothing lies before them.
int64_t attention_flop(const ModelConfig& config, int64_t position, int64_t num_rows);
/// Of one layer: S^T k, k u^T and S^T q of the delta rule, row by row. The chunk form adds triangles of its own; they count as time, not as work.
int64_t gdn_flop(const ModelConfig& config, int64_t num_rows);

/// num_rows rows behind `position`, and the head for the last of them.
int64_t prompt_flop(const ModelWeights& weights, int64_t position, int64_t num_rows);

}  // namespace sluice
