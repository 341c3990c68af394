#pragma once

#include "verify/golden.h"
#include "verify/model_runner.h"

namespace sluice {

/// Relative difference (Frobenius) between a recorded tensor and the sequence's state, which stands at
/// golden.num_tokens. Infinite when ours is not finite.
double state_difference(const GoldenState& golden, int64_t state_rows, ModelRunner& runner,
                        const Sequence& sequence);

}  // namespace sluice
