#pragma once

#include "base/arena.h"
#include "base/threads.h"
#include "ops/row_run.h"
#include "ops/step_view.h"

namespace sluice {

class OpTap;

/// What a backend keeps between the steps of one caller (OpTable::open_state): step blocks, recorded graphs.
class BackendState {
 public:
  BackendState() = default;
  BackendState(const BackendState&) = delete;
  BackendState& operator=(const BackendState&) = delete;
  virtual ~BackendState() = default;
};

/// What an op may use besides its arguments. One for each step.
struct OpContext {
  ThreadPool* pool = nullptr;
  /// Ops take scratch from here inside an Arena::Scope; the backend's scratch_bytes() bounds it.
  Arena* scratch = nullptr;
  /// Looks at outputs behind every op of a tapped table (op_tap.h); otherwise unused.
  OpTap* tap = nullptr;
  /// What open_state gave; null where there is none.
  BackendState* state = nullptr;
  /// What begin_step made of the step's rows, and the number it gave the step.
  StepView step = {};
  int64_t step_number = 0;
  /// Set by begin_step: this step's blocks run as a prompt's (StepRows::is_prefill), and the backend has kernels for that.
  bool is_prefill = false;
  /// Set by await_step: an activation did not fit the kernels' number format, and the step's results are not to be used.
  bool out_of_range = false;
  /// Set by await_step where OpTable::draw was called: an id a logit row, or kNoToken. Valid until kStepsAheadMax later steps were started.
  const int32_t* drawn = nullptr;
  /// Likewise, of the draws that asked for log probabilities.
  const DrawnLogits* drawn_logits = nullptr;
};

}  // namespace sluice
