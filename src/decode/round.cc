#include "decode/round.h"

namespace sluice {

StepOutput decode_step(Forward& forward, StatePool& state, int32_t token_id, GdnForm prefill_form,
                       Sequence* sequence, const StepDraw& draw) {
  RowRun run = state.next_run(*sequence, 0, 1);
  run.checkpoint_slot = kNoSlot;
  const int32_t logit_row = 0;
  StepInput input;
  input.token_ids = {&token_id, 1};
  input.runs = {&run, 1};
  input.gdn_form = GdnForm::kStep;
  input.logit_rows = {&logit_row, 1};
  draw.apply(&input);
  const StepOutput output = forward.forward_rows(input, state);
  state.advance(sequence, 1, false);
  if (prefill_form == GdnForm::kChunk && sequence->position % kGdnChunk == 0) {
    state.save_checkpoint(sequence);
  }
  return output;
}

}  // namespace sluice
