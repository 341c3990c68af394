#include "ops/cuda/step_state.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <utility>

#include "ops/cuda/device.h"

namespace sluice::cuda {
namespace {

constexpr int64_t kAlignment = 16;

int64_t align(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <typename T>
int64_t bytes_of(int64_t count) {
  return align(count * static_cast<int64_t>(sizeof(T)));
}

BlockLayout make_layout(int64_t rows_max, int64_t pages_max) {
  BlockLayout layout = {};
  layout.rows = kAlignment;  // behind the number of pages
  layout.runs = layout.rows + bytes_of<DeviceRow>(rows_max);
  layout.logit_rows = layout.runs + bytes_of<DeviceRun>(kRunsMax);
  layout.draws = layout.logit_rows + bytes_of<int32_t>(rows_max);
  layout.stop_ids = layout.draws + bytes_of<SampleRow>(rows_max);
  layout.pages = layout.stop_ids + bytes_of<int32_t>(kDrawnMax * kStopIdsMax);
  layout.size = layout.pages + bytes_of<int32_t>(pages_max);
  return layout;
}

int64_t num_pages(const RowRun& run) {
  return pages_for(run.position + run.num_rows);
}

SampleRow sample_row(const DrawRequest& request) {
  SampleRow row = {};
  row.temperature = request.temperature;
  row.top_k = request.top_k;
  row.top_p = request.top_p;
  row.log_min_p = request.log_min_p;
  row.seed = request.seed;
  row.position = request.position;
  row.flags = kSampleActive;
  if (request.num_logprobs >= 0) {
    row.flags |= kSampleLogprob;
    row.num_top = std::min(request.num_logprobs, kLogprobsMax);
  }
  return row;
}

/// Behind the block: drawn tokens, the count of steps, the range flag.
constexpr int64_t kCountsBytes = 64;

}  // namespace

int64_t padded_step_rows(int64_t num_rows) {
  if (num_rows > kGraphRowsMax) return num_rows;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_rows)));
}

StepState& step_state(const OpContext& context) {
  SLUICE_CHECK(context.state != nullptr);
  return *static_cast<StepState*>(context.state);
}

Result<std::unique_ptr<BackendState>> StepState::open(const OpDims& dims) {
  std::unique_ptr<StepState> state(new StepState);
  state->rows_max_ = std::max<int64_t>(dims.num_rows_max, kGraphRowsMax);
  const int64_t pages_of_run = pages_for(dims.context_max);
  state->pages_max_ = std::max<int64_t>(kRunsMax * pages_of_run, kEagerPages);
  SLUICE_ASSIGN_OR_RETURN(state->work_, WorkMemory::create(dims));
  StepDevice& device = state->device_;
  device.layout = make_layout(state->rows_max_, state->pages_max_);
  const auto size = static_cast<size_t>(device.layout.size);
  const auto report_bytes = static_cast<size_t>(bytes_of<StepReport>(1));
  SLUICE_ASSIGN_OR_RETURN(
      state->mapped_,
      device_memory().allocate(kBlocks * size + report_bytes, "step blocks", MemoryKind::kShared));
  const auto drawn_bytes = static_cast<size_t>(bytes_of<int32_t>(state->rows_max_));
  const auto logits_bytes = static_cast<size_t>(bytes_of<DrawnLogits>(kDrawnMax));
  SLUICE_ASSIGN_OR_RETURN(state->device_buffer_,
                          device_memory().allocate(size + drawn_bytes + logits_bytes + kCountsBytes,
                                                   "step block", MemoryKind::kPrivate));
  auto* mapped = reinterpret_cast<uint8_t*>(state->mapped_.data());
  auto* own = reinterpret_cast<uint8_t*>(state->device_buffer_.data());
  device.mapped = mapped;  // one address space: the device's address is the host's
  device.report = reinterpret_cast<StepReport*>(mapped + kBlocks * size);
  device.block = own;
  device.drawn = reinterpret_cast<int32_t*>(own + size);
  device.drawn_logits = reinterpret_cast<DrawnLogits*>(own + size + drawn_bytes);
  device.num_opened = reinterpret_cast<int64_t*>(own + size + drawn_bytes + logits_bytes);
  device.range_flag = reinterpret_cast<int32_t*>(device.num_opened + 1);
  state->report_ = device.report;
  return std::unique_ptr<BackendState>(std::move(state));
}

StepState::~StepState() {
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
  for (const Graph& graph : graphs_) SLUICE_CUDA_CHECK(cudaGraphExecDestroy(graph.exec));
}

StepView StepState::view_of(const StepRows& rows) const {
  const BlockLayout& layout = device_.layout;
  StepView view;
  view.rows = reinterpret_cast<const DeviceRow*>(device_.block + layout.rows);
  view.runs = reinterpret_cast<const DeviceRun*>(device_.block + layout.runs);
  view.logit_rows = reinterpret_cast<const int32_t*>(device_.block + layout.logit_rows);
  view.pages = reinterpret_cast<const int32_t*>(device_.block + layout.pages);
  view.drawn = device_.drawn;
  view.range_flag = device_.range_flag;
  view.num_rows = static_cast<int32_t>(rows.num_rows);
  // A graph's steps have any number of runs, up to one a row.
  view.num_runs = static_cast<int32_t>(rows.num_rows <= kGraphRowsMax && !rows.is_prefill
                                           ? rows.num_rows
                                           : static_cast<int64_t>(rows.runs.size()));
  view.num_logit_rows = static_cast<int32_t>(rows.num_logit_rows);
  return view;
}

void StepState::write_block(const StepRows& step, int num_runs) {
  const BlockLayout& layout = device_.layout;
  auto* block = reinterpret_cast<uint8_t*>(mapped_.data()) + num_begun_ % kBlocks * layout.size;
  auto* rows = reinterpret_cast<DeviceRow*>(block + layout.rows);
  auto* runs = reinterpret_cast<DeviceRun*>(block + layout.runs);
  auto* logit_rows = reinterpret_cast<int32_t*>(block + layout.logit_rows);
  auto* pages = reinterpret_cast<int32_t*>(block + layout.pages);
  int32_t page = 0;
  for (size_t r = 0; r < step.runs.size(); ++r) {
    const RowRun& run = step.runs[r];
    runs[r] = {run.first_row, run.num_rows, run.position, run.slot, run.checkpoint_slot, page};
    for (int32_t i = 0; i < run.num_rows; ++i) {
      rows[run.first_row + i] = {step.token_ids[static_cast<size_t>(run.first_row + i)],
                                 run.position + i, static_cast<int32_t>(r)};
    }
    if (run.page_table == nullptr) continue;
    SLUICE_CHECK_LE(page + num_pages(run), pages_max_);
    std::copy_n(run.page_table, num_pages(run), pages + page);
    page += static_cast<int32_t>(num_pages(run));
  }
  std::fill(runs + step.runs.size(), runs + num_runs, DeviceRun{0, 0, 0, kNoSlot, kNoSlot, 0});
  std::fill(rows + step.token_ids.size(), rows + step.num_rows, DeviceRow{0, 0, -1});
  std::copy(step.logit_rows.begin(), step.logit_rows.end(), logit_rows);
  std::fill(logit_rows + step.logit_rows.size(), logit_rows + step.num_logit_rows, -1);
  auto* draws = reinterpret_cast<SampleRow*>(block + layout.draws);
  std::transform(step.draws.begin(), step.draws.end(), draws, sample_row);
  std::fill(draws + step.draws.size(), draws + step.num_logit_rows, SampleRow{});
  auto* stop_ids = reinterpret_cast<int32_t*>(block + layout.stop_ids);
  for (const DrawRequest& request : step.draws) {
    SLUICE_CHECK_LE(request.stop_ids.size(), kStopIdsMax);
    std::copy(request.stop_ids.begin(), request.stop_ids.end(), stop_ids);
    std::fill(stop_ids + request.stop_ids.size(), stop_ids + kStopIdsMax, kNoToken);
    stop_ids += kStopIdsMax;
  }
  *reinterpret_cast<int32_t*>(block) = page;
}

const StepState::Graph* StepState::find_graph(const StepRows& rows) const {
  for (const Graph& graph : graphs_) {
    if (graph.key == rows.key && graph.num_rows == rows.num_rows &&
        graph.num_logit_rows == rows.num_logit_rows) {
      return &graph;
    }
  }
  return nullptr;
}

bool StepState::begin(const StepRows& rows, OpContext& context) {
  SLUICE_CHECK_LE(rows.num_rows, rows_max_);
  SLUICE_CHECK_LE(rows.num_logit_rows, rows_max_);
  SLUICE_CHECK_LE(static_cast<int64_t>(rows.runs.size()), kRunsMax);
  SLUICE_CHECK(mode_ == Mode::kCalled || mode_ == Mode::kReplayed);
  const bool is_recorded = rows.key.kind != StepKey::Kind::kNone && rows.num_rows <= kGraphRowsMax;
  const Graph* graph = is_recorded ? find_graph(rows) : nullptr;
  mode_ = Mode::kReplayed;
  if (rows.is_rehearsal && (!is_recorded || graph != nullptr)) return true;
  context.step = view_of(rows);
  context.is_prefill = rows.is_prefill && work_.has_prefill();
  if (context.is_prefill) SLUICE_CHECK_LE(static_cast<int>(rows.runs.size()), kPrefillRunsMax);
  if (!rows.is_rehearsal) bring_rows(rows, context);
  const cudaStream_t stream = device().stream;
  if (graph != nullptr) {
    SLUICE_CUDA_CHECK(cudaGraphLaunch(graph->exec, stream));
    return true;
  }
  mode_ = !is_recorded ? Mode::kCalled : rows.is_rehearsal ? Mode::kRehearsed : Mode::kRecorded;
  if (is_recorded) {
    recording_ = {rows.key, rows.num_rows, rows.num_logit_rows, nullptr};
    SLUICE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  }
  SLUICE_CUDA_CHECK(launch_open_step(device_, context.step, stream));
  return false;
}

void StepState::bring_rows(const StepRows& rows, OpContext& context) {
  await_count(report_->num_opened, num_begun_ + 1 - kBlocks);
  context.step_number = num_begun_;
  write_block(rows, context.step.num_runs);
  ++num_begun_;
}

void StepState::end(const OpContext& context) {
  const Mode mode = std::exchange(mode_, Mode::kCalled);
  if (mode == Mode::kReplayed) return;
  const cudaStream_t stream = device().stream;
  SLUICE_CUDA_CHECK(launch_close_step(device_, context.step, stream));
  if (mode == Mode::kCalled) return;
  cudaGraph_t graph = nullptr;
  SLUICE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  SLUICE_CUDA_CHECK(cudaGraphInstantiate(&recording_.exec, graph, 0));
  SLUICE_CUDA_CHECK(cudaGraphDestroy(graph));
  graphs_.push_back(recording_);
  // Its first launch shall find it on the device.
  SLUICE_CUDA_CHECK(mode == Mode::kRehearsed ? cudaGraphUpload(recording_.exec, stream)
                                             : cudaGraphLaunch(recording_.exec, stream));
}

void StepState::await(OpContext& context) const {
  await_count(report_->num_closed, context.step_number + 1);
  context.drawn = report_->drawn[context.step_number % kBlocks];
  context.drawn_logits = report_->logits[context.step_number % kBlocks];
  context.out_of_range = report_->out_of_range[context.step_number % kBlocks] != 0;
  if (context.out_of_range) work_.clear_operands();
}

void StepState::await_count(const int64_t& count, int64_t wanted) const {
  // The driver is asked only when nothing has come for so long: a broken device never answers.
  constexpr auto kPatience = std::chrono::seconds(2);
  constexpr int kLooksBetweenClocks = 4096;
  const std::atomic_ref<const int64_t> counter(count);
  auto asked = std::chrono::steady_clock::now();
  for (int looks = 0; counter.load(std::memory_order_acquire) < wanted; ++looks) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (looks % kLooksBetweenClocks != 0) continue;
    const auto now = std::chrono::steady_clock::now();
    if (now - asked < kPatience) continue;
    asked = now;
    const cudaError_t error = cudaStreamQuery(device().stream);
    if (error != cudaErrorNotReady) SLUICE_CUDA_CHECK(error);
    SLUICE_CHECK(error == cudaErrorNotReady || counter.load() >= wanted);
  }
}

}  // namespace sluice::cuda
