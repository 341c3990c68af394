#pragma once

#include <span>

#include "base/status.h"
#include "forward/forward.h"
#include "state/state_pool.h"

namespace sluice {

/// How the backend draws the token behind a step's last row; without a request the host draws from the logits.
struct StepDraw {
  const DrawRequest* request = nullptr;
  int32_t num_defined = 0;

  void apply(StepInput* input) const {
    if (request == nullptr) return;
    input->draws = {request, 1};
    input->num_defined = num_defined;
    input->wants_logits = false;
  }
};

struct PrefillOptions {
  /// kStep advances from the live position; kChunk goes back to the last multiple of kGdnChunk and runs at most
  /// kGdnChunk - 1 rows again. Either way any cut of a prompt gives the same bits.
  GdnForm gdn_form = GdnForm::kStep;
  /// Rows of one forward step; a multiple of kGdnChunk.
  int64_t rows_max = 512;
  /// Of the last step.
  StepDraw draw = {};
};

/// A step of a prompt under way.
struct PendingPrefill {
  PendingStep step;
  int32_t num_rows = 0;
  /// The prompt is done with it.
  bool is_last = false;
};

/// One forward step of a prompt, at most rows_max rows, in two halves as Forward's: `sequence` advances with the second one. The output is of the step's last
/// row, hidden vector and logits, where it is the last step. Between steps the state is whole, so a caller may stop there and go on later.
PendingPrefill start_prefill_step(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                                  const PrefillOptions& options, Sequence* sequence);
StepOutput finish_prefill_step(Forward& forward, StatePool& state, const PendingPrefill& pending,
                               const PrefillOptions& options, Sequence* sequence);

/// Both halves: true when the prompt is done.
bool prefill_step(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                  const PrefillOptions& options, Sequence* sequence, StepOutput* output);

/// All steps: advances `sequence` over ids[sequence->position ..) and returns the last row's hidden vector and logits,
/// valid until the next step. `ids` are all ids of the session so far: the chunk form may re-run some.
/// Pre: ids.size() > sequence->position, room for them is reserved.
StepOutput prefill(Forward& forward, StatePool& state, std::span<const int32_t> ids,
                   const PrefillOptions& options, Sequence* sequence);

}  // namespace sluice
