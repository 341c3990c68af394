#pragma once

#include "base/arena.h"
#include "base/threads.h"
#include "ops/step_view.h"

namespace sluice {

class OpTap;

/// What a host backend's op may use besides its arguments.
struct OpContext {
  ThreadPool* pool = nullptr;
  /// Ops take scratch from here inside an Arena::Scope; the backend's scratch_bytes() bounds it.
  Arena* scratch = nullptr;
  /// What begin_step made of the step's rows.
  StepView step = {};
  /// Looks at outputs behind every op of a tapped table (op_tap.h); otherwise unused.
  OpTap* tap = nullptr;
};

}  // namespace sluice
