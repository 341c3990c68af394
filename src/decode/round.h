#pragma once

#include "decode/prefill.h"

namespace sluice {

/// Starts one plain decode step: the row of `token_id`, which may be a drawn_token. Pre: one more position is reserved.
PendingStep start_decode_step(Forward& forward, StatePool& state, int32_t token_id,
                              const Sequence& sequence, const StepDraw& draw);
/// The sequence follows the step that was started last, once it is certain that it is run. With the chunk form's prefill the
/// checkpoint follows at every multiple of kGdnChunk.
void commit_decode_step(StatePool& state, GdnForm prefill_form, Sequence* sequence);

/// The whole of it: advances `sequence` by the row of `token_id` and returns its logits.
StepOutput decode_step(Forward& forward, StatePool& state, int32_t token_id, GdnForm prefill_form,
                       Sequence* sequence, const StepDraw& draw = {});

}  // namespace sluice
