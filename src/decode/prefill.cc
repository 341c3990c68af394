#include "decode/prefill.h"

#include <algorithm>

namespace sluice {

PendingPrefill start_prefill_step(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                                  const PrefillOptions& options, Sequence* sequence) {
  const auto num_ids = static_cast<int64_t>(ids.size());
  SLUICE_CHECK_GT(num_ids, sequence->position);
  SLUICE_CHECK_EQ(options.rows_max % kGdnChunk, 0);
  const bool chunked = options.gdn_form == GdnForm::kChunk;
  if (chunked && sequence->position != sequence->checkpoint_position) {
    state.restore_checkpoint(sequence);
  }
  PendingPrefill pending;
  const int64_t first = sequence->position;
  pending.num_rows = static_cast<int32_t>(std::min(options.rows_max, num_ids - first));
  pending.is_last = first + pending.num_rows == num_ids;
  const int32_t last_row = pending.num_rows - 1;
  RowRun run = state.next_run(*sequence, 0, pending.num_rows);
  if (!chunked) run.checkpoint_slot = kNoSlot;
  StepInput input;
  input.token_ids = ids.subspan(static_cast<size_t>(first), static_cast<size_t>(pending.num_rows));
  input.runs = {&run, 1};
  input.gdn_form = options.gdn_form;
  if (pending.is_last) {
    input.logit_rows = {&last_row, 1};
    options.draw.apply(&input);
  }
  pending.step = forward.start_rows(input, state);
  return pending;
}

StepOutput finish_prefill_step(Forward& forward, StatePool& state, const PendingPrefill& pending,
                               const PrefillOptions& options, Sequence* sequence) {
  const StepOutput output = forward.finish(pending.step);
  state.advance(sequence, pending.num_rows, options.gdn_form == GdnForm::kChunk);
  return output;
}

bool prefill_step(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                  const PrefillOptions& options, Sequence* sequence, StepOutput* output) {
  const PendingPrefill pending = start_prefill_step(forward, state, ids, options, sequence);
  *output = finish_prefill_step(forward, state, pending, options, sequence);
  return pending.is_last;
}

StepOutput prefill(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                   const PrefillOptions& options, Sequence* sequence) {
  StepOutput output;
  while (!prefill_step(forward, state, ids, options, sequence, &output)) {
  }
  return output;
}

}  // namespace sluice
