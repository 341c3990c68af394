#pragma once

#include "forward/forward.h"

namespace sluice {

/// Lets the backend record every step that prefill and decode of one session are made of (round.h), drawn by the backend or not, so that the
/// first of a kind is like all others. `rows_max`: of a prompt's step. Ids from num_defined on are never drawn.
void rehearse_steps(Forward& forward, StatePool& state, GdnForm prefill_form, int64_t rows_max,
                    int32_t num_defined);

}  // namespace sluice
