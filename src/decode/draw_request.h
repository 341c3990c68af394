#pragma once

#include "decode/sampling_params.h"
#include "ops/row_run.h"

namespace sluice {

/// Penalties need the host's sampler.
bool can_be_drawn_by_backend(const SamplingParams& params);
/// Pre: can_be_drawn_by_backend. `position` is the drawn token's own.
DrawRequest draw_request(const SamplingParams& params, int64_t position);

}  // namespace sluice
