#pragma once
// What changes from step to step, where kernels of a device can read it.

#include <cstdint>

namespace sluice {

/// A row of the step.
struct DeviceRow {
  int32_t token_id;
  int32_t position;
  int32_t run;  // index into the runs; -1: padding, which belongs to no session
};

/// A run; its page table begins at StepView::pages + first_page.
struct DeviceRun {
  int32_t first_row;
  int32_t num_rows;  // 0: padding
  int32_t position;
  int32_t slot;
  int32_t checkpoint_slot;
  int32_t first_page;
};

/// Passed to kernels by value; the arrays lie in the backend's memory, at the same place in every step, and are
/// complete before any kernel but the first begins. Null on backends that run on the host.
///
/// Padding: rows with run == -1 (token 0, position 0), runs with num_rows == 0, logit rows of -1. Kernels that touch
/// state leave them out; grids are sized by the counts below, which are the same in every step that replays one graph.
struct StepView {
  const DeviceRow* rows = nullptr;
  const DeviceRun* runs = nullptr;
  const int32_t* pages = nullptr;
  const int32_t* logit_rows = nullptr;
  /// What this step's sampler draws for each logit row; ids of the next step may stand for it (drawn_token).
  int32_t* drawn = nullptr;
  /// Set to 1 by whoever meets an activation that its number format cannot hold.
  int32_t* range_flag = nullptr;
  int32_t num_rows = 0;
  int32_t num_runs = 0;
  int32_t num_logit_rows = 0;
};

}  // namespace sluice
