// Implements step_block.h. One block of threads each: they move some kilobytes.
#include "ops/cuda/sample.h"
#include "ops/cuda/step_block.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kCloseThreads = kDrawnMax;

__device__ void copy_words(const uint8_t* from, uint8_t* to, int64_t offset, int first, int count) {
  const auto* source = reinterpret_cast<const int32_t*>(from + offset);
  auto* target = reinterpret_cast<int32_t*>(to + offset);
  for (int i = first + static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    target[i] = source[i];
  }
}

/// Which runs are not run: the token they begin with was not drawn, or ended its turn.
struct Stopped {
  int any;
  int runs[kRunsMax];
};

__device__ void copy_rows(const StepDevice& device, const uint8_t* from, int num_rows,
                          Stopped& stopped) {
  const auto* source = reinterpret_cast<const DeviceRow*>(from + device.layout.rows);
  auto* target = reinterpret_cast<DeviceRow*>(device.block + device.layout.rows);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows; i += kThreads) {
    DeviceRow row = source[i];
    if (row.token_id < 0) {
      row.token_id = device.drawn[-1 - row.token_id];
      if (row.token_id < 0) stopped.any = stopped.runs[row.run] = 1;
    }
    target[i] = row;
  }
}

/// Stopped runs become padding, their rows and logit rows too.
__device__ void clear_stopped(const StepDevice& device, const uint8_t* from, int num_rows,
                              int num_runs, int num_logit_rows, const Stopped& stopped) {
  const auto* source = reinterpret_cast<const DeviceRow*>(from + device.layout.rows);
  auto* rows = reinterpret_cast<DeviceRow*>(device.block + device.layout.rows);
  auto* runs = reinterpret_cast<DeviceRun*>(device.block + device.layout.runs);
  auto* logit_rows = reinterpret_cast<int32_t*>(device.block + device.layout.logit_rows);
  auto* draws = reinterpret_cast<SampleRow*>(device.block + device.layout.draws);
  const auto is_stopped = [&](int run) { return run >= 0 && stopped.runs[run] != 0; };
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < num_rows; i += kThreads) {
    if (is_stopped(source[i].run)) rows[i] = {0, 0, -1};
  }
  for (int i = first; i < num_runs; i += kThreads) {
    if (is_stopped(i)) runs[i] = {0, 0, 0, kNoSlot, kNoSlot, 0};
  }
  for (int i = first; i < num_logit_rows; i += kThreads) {
    if (logit_rows[i] < 0 || !is_stopped(source[logit_rows[i]].run)) continue;
    logit_rows[i] = -1;
    draws[i].flags = 0;
  }
}

__global__ void open_step_kernel(StepDevice device, int num_rows, int num_runs,
                                 int num_logit_rows) {
  constexpr int kRunWords = sizeof(DeviceRun) / sizeof(int32_t);
  constexpr int kDrawWords = sizeof(SampleRow) / sizeof(int32_t);
  __shared__ Stopped stopped;
  const BlockLayout& layout = device.layout;
  const int64_t number = *device.num_opened;
  const uint8_t* from = device.mapped + number % kBlocks * layout.size;
  const int num_pages = *reinterpret_cast<const int32_t*>(from);
  for (int i = static_cast<int>(threadIdx.x); i < kRunsMax; i += kThreads) stopped.runs[i] = 0;
  if (threadIdx.x == 0) stopped.any = 0;
  __syncthreads();
  copy_rows(device, from, num_rows, stopped);
  copy_words(from, device.block, layout.runs, 0, num_runs * kRunWords);
  copy_words(from, device.block, layout.logit_rows, 0, num_logit_rows);
  copy_words(from, device.block, layout.draws, 0, num_logit_rows * kDrawWords);
  copy_words(from, device.block, layout.stop_ids, 0,
             min(num_logit_rows, kDrawnMax) * static_cast<int>(kStopIdsMax));
  copy_words(from, device.block, layout.pages, 0, kEagerPages);
  copy_words(from, device.block, layout.pages, kEagerPages, num_pages);
  __syncthreads();
  if (stopped.any != 0) {
    clear_stopped(device, from, num_rows, num_runs, num_logit_rows, stopped);
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  *device.num_opened = number + 1;
  __threadfence_system();
  *const_cast<volatile int64_t*>(&device.report->num_opened) = number + 1;
}

/// What logit row `i` drew; what may follow it is left in device.drawn.
__device__ int32_t close_draw(const StepDevice& device, int i) {
  const auto* draws = reinterpret_cast<const SampleRow*>(device.block + device.layout.draws);
  const auto* stop_ids =
      reinterpret_cast<const int32_t*>(device.block + device.layout.stop_ids) + i * kStopIdsMax;
  if ((draws[i].flags & kSampleActive) == 0) return kNoToken;
  const int32_t id = device.drawn[i];
  bool is_stop = false;
  for (size_t s = 0; s < kStopIdsMax; ++s) is_stop |= id == stop_ids[s];
  if (is_stop) device.drawn[i] = kNoToken;
  return id;
}

/// What a draw told of its logits, to the host.
__device__ void report_logits(const StepDevice& device, int64_t place, int i) {
  const auto* draws = reinterpret_cast<const SampleRow*>(device.block + device.layout.draws);
  constexpr uint32_t kAsks = kSampleActive | kSampleLogprob;
  if ((draws[i].flags & kAsks) == kAsks) device.report->logits[place][i] = device.drawn_logits[i];
}

__global__ void close_step_kernel(StepDevice device, int num_logit_rows) {
  const int64_t number = *device.num_opened - 1;
  const int64_t place = number % kBlocks;
  const int i = static_cast<int>(threadIdx.x);
  if (i < num_logit_rows) {
    *const_cast<volatile int32_t*>(&device.report->drawn[place][i]) = close_draw(device, i);
    report_logits(device, place, i);
  }
  __syncthreads();
  if (i != 0) return;
  *const_cast<volatile int32_t*>(&device.report->out_of_range[place]) = *device.range_flag;
  *device.range_flag = 0;
  // What every earlier kernel and the block's threads wrote to mapped memory, before the count.
  __threadfence_system();
  *const_cast<volatile int64_t*>(&device.report->num_closed) = number + 1;
}

}  // namespace

cudaError_t launch_open_step(const StepDevice& device, const StepView& view, cudaStream_t stream) {
  open_step_kernel<<<1, kThreads, 0, stream>>>(device, view.num_rows, view.num_runs,
                                               view.num_logit_rows);
  return cudaGetLastError();
}

cudaError_t launch_close_step(const StepDevice& device, const StepView& view, cudaStream_t stream) {
  close_step_kernel<<<1, kCloseThreads, 0, stream>>>(device, view.num_logit_rows);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
