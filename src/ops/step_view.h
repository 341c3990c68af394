#pragma once
// What changes from step to step, where kernels of a device can read it.

#include <cstdint>

namespace sluice {

/// A row of the step.
struct DeviceRow {
  int32_t token_id;
  int32_t position;
  int32_t run;  // index into the runs
};

/// A run; its page table begins at StepView::pages + first_page.
struct DeviceRun {
  int32_t first_row;
  int32_t num_rows;
  int32_t position;
  int32_t slot;
  int32_t checkpoint_slot;
  int32_t first_page;
};

/// Passed to kernels by value; the arrays lie in the backend's memory. Null on backends that run on the host.
struct StepView {
  const DeviceRow* rows = nullptr;
  const DeviceRun* runs = nullptr;
  const int32_t* pages = nullptr;
  int32_t num_rows = 0;
  int32_t num_runs = 0;
};

}  // namespace sluice
