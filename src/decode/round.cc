#include "decode/round.h"

namespace sluice {

PendingStep start_decode_step(Forward& forward, StatePool& state, int32_t token_id,
                              const Sequence& sequence, const StepDraw& draw) {
  RowRun run = state.next_run(sequence, 0, 1);
  run.checkpoint_slot = kNoSlot;
  const int32_t logit_row = 0;
  StepInput input;
  input.token_ids = {&token_id, 1};
  input.runs = {&run, 1};
  input.gdn_form = GdnForm::kStep;
  input.logit_rows = {&logit_row, 1};
  draw.apply(&input);
  return forward.start_rows(input, state);
}

void commit_decode_step(StatePool& state, GdnForm prefill_form, Sequence* sequence) {
  state.advance(sequence, 1, false);
  if (prefill_form == GdnForm::kChunk && sequence->position % kGdnChunk == 0) {
    state.save_checkpoint(sequence);
  }
}

StepOutput decode_step(Forward& forward, StatePool& state, int32_t token_id, GdnForm prefill_form,
                       Sequence* sequence, const StepDraw& draw) {
  PendingStep step = start_decode_step(forward, state, token_id, *sequence, draw);
  commit_decode_step(state, prefill_form, sequence);
  return forward.finish(std::move(step));
}

}  // namespace sluice
