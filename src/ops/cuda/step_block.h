#pragma once
// A step's rows on their way to the device: the host writes them into one of a few mapped blocks, and the step's first kernel copies
// that into the device's own block, which StepView points to. No call of the driver is made, and every address stays.
//
// Blocks are taken in turn by the step's number. The device counts steps itself, so that a replayed graph finds its block; both
// counts grow by one for each begin_step.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/row_run.h"
#include "ops/step_view.h"

namespace sluice::cuda {

/// Rows of a step that may be recorded as a graph, and largest number of runs in one step.
inline constexpr int kGraphRowsMax = 64;
inline constexpr int kRunsMax = 256;
/// Steps that may be under way.
inline constexpr int kBlocks = kStepsAheadMax + 1;
/// Pages that are copied without asking how many there are: the table of a session of 64 thousand tokens.
inline constexpr int kEagerPages = 256;

/// Where a block's arrays lie, in bytes from its start; alike on both sides. It starts with the number of pages.
struct BlockLayout {
  int64_t rows, runs, logit_rows, draws, stop_ids, pages, size;
};

/// What the device tells the host, in mapped memory. Counts of steps; what a step n left at n % kBlocks.
struct StepReport {
  int64_t num_opened;             // their mapped blocks have been read
  int64_t num_closed;             // their results are in shared memory
  int32_t out_of_range[kBlocks];  // range_flag
  int32_t drawn[kBlocks][kDrawnMax];
  DrawnLogits logits[kBlocks][kDrawnMax];
};

struct StepDevice {
  BlockLayout layout;
  const uint8_t* mapped;  // kBlocks blocks, as the device addresses them
  uint8_t* block;         // the device's own
  int64_t* num_opened;    // its count of steps
  int32_t* drawn;
  DrawnLogits* drawn_logits;
  int32_t* range_flag;
  StepReport* report;  // mapped
};

/// The step's first kernel: nothing else of the step may begin before it has ended. A drawn token behind which nothing is run makes its run
/// padding here.
cudaError_t launch_open_step(const StepDevice& device, const StepView& view, cudaStream_t stream);
/// The last: it begins when everything before it has ended.
cudaError_t launch_close_step(const StepDevice& device, const StepView& view, cudaStream_t stream);

}  // namespace sluice::cuda
