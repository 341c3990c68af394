#include "ops/cuda/step_block.h"

#include <cstring>
#include <vector>

#include "base/arena.h"
#include "ops/cuda/device.h"

namespace sluice::cuda {
namespace {

int64_t num_pages(const RowRun& run) {
  return (run.position + run.num_rows + kKvPageTokens - 1) / kKvPageTokens;
}

/// The block as one piece of host memory, so that one copy brings it over.
struct Packed {
  std::vector<DeviceRow> rows;
  std::vector<DeviceRun> runs;
  std::vector<int32_t> pages;
};

Packed pack(const StepRows& step) {
  Packed packed;
  for (const RowRun& run : step.runs) {
    const auto run_idx = static_cast<int32_t>(packed.runs.size());
    const auto first_page = static_cast<int32_t>(packed.pages.size());
    packed.runs.push_back(
        {run.first_row, run.num_rows, run.position, run.slot, run.checkpoint_slot, first_page});
    if (run.page_table != nullptr) {
      packed.pages.insert(packed.pages.end(), run.page_table, run.page_table + num_pages(run));
    }
    for (int32_t i = 0; i < run.num_rows; ++i) {
      const auto row = static_cast<size_t>(run.first_row + i);
      packed.rows.push_back({step.token_ids[row], run.position + i, run_idx});
    }
  }
  return packed;
}

template <typename T>
const T* place(const std::vector<T>& values, Arena* arena) {
  T* to = arena->take<T>(static_cast<int64_t>(values.size()));
  if (!values.empty()) {
    SLUICE_CUDA_CHECK(cudaMemcpyAsync(to, values.data(), values.size() * sizeof(T),
                                      cudaMemcpyHostToDevice, device().stream));
  }
  return to;
}

}  // namespace

size_t step_block_bytes(int64_t num_rows_max, int64_t context_max) {
  // A step of many sessions holds one page table a row at most.
  const int64_t pages = num_rows_max * ((context_max + kKvPageTokens - 1) / kKvPageTokens);
  const auto rows = static_cast<size_t>(num_rows_max);
  return rows * (sizeof(DeviceRow) + sizeof(DeviceRun)) +
         static_cast<size_t>(pages) * sizeof(int32_t) + 4 * Arena::kAlignment;
}

void begin_step(const StepRows& rows, OpContext& context) {
  const Packed packed = pack(rows);
  // From pageable memory the copy has read its source when the call returns.
  StepView* view = &context.step;
  view->rows = place(packed.rows, context.scratch);
  view->runs = place(packed.runs, context.scratch);
  view->pages = place(packed.pages, context.scratch);
  view->num_rows = static_cast<int32_t>(packed.rows.size());
  view->num_runs = static_cast<int32_t>(packed.runs.size());
}

void end_step(OpContext&) {
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
}

}  // namespace sluice::cuda
