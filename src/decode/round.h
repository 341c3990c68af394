#pragma once

#include "decode/prefill.h"

namespace sluice {

/// One plain decode step: advances `sequence` by the row of `token_id` and returns its logits.
/// With the chunk form's prefill the checkpoint follows at every multiple of kGdnChunk.
/// Pre: one more position is reserved.
StepOutput decode_step(Forward& forward, StatePool& state, int32_t token_id, GdnForm prefill_form,
                       Sequence* sequence, const StepDraw& draw = {});

}  // namespace sluice
