// Implements step_block.h. One block of threads each: they move some kilobytes.
#include "ops/cuda/sample.h"
#include "ops/cuda/step_block.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

__device__ void copy_words(const uint8_t* from, uint8_t* to, int64_t offset, int first, int count) {
  const auto* source = reinterpret_cast<const int32_t*>(from + offset);
  auto* target = reinterpret_cast<int32_t*>(to + offset);
  for (int i = first + static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    target[i] = source[i];
  }
}

__device__ void copy_rows(const StepDevice& device, const uint8_t* from, int num_rows) {
  const auto* source = reinterpret_cast<const DeviceRow*>(from + device.layout.rows);
  auto* target = reinterpret_cast<DeviceRow*>(device.block + device.layout.rows);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows; i += kThreads) {
    DeviceRow row = source[i];
    if (row.token_id < 0) row.token_id = device.drawn[-1 - row.token_id];
    target[i] = row;
  }
}

__global__ void open_step_kernel(StepDevice device, int num_rows, int num_runs,
                                 int num_logit_rows) {
  constexpr int kRunWords = sizeof(DeviceRun) / sizeof(int32_t);
  constexpr int kDrawWords = sizeof(SampleRow) / sizeof(int32_t);
  const BlockLayout& layout = device.layout;
  const int64_t number = *device.num_opened;
  const uint8_t* from = device.mapped + number % kBlocks * layout.size;
  const int num_pages = *reinterpret_cast<const int32_t*>(from);
  copy_rows(device, from, num_rows);
  copy_words(from, device.block, layout.runs, 0, num_runs * kRunWords);
  copy_words(from, device.block, layout.logit_rows, 0, num_logit_rows);
  copy_words(from, device.block, layout.draws, 0, num_logit_rows * kDrawWords);
  copy_words(from, device.block, layout.pages, 0, kEagerPages);
  copy_words(from, device.block, layout.pages, kEagerPages, num_pages);
  __syncthreads();
  if (threadIdx.x != 0) return;
  *device.num_opened = number + 1;
  __threadfence_system();
  *const_cast<volatile int64_t*>(&device.report->num_opened) = number + 1;
}

__global__ void close_step_kernel(StepDevice device) {
  const int64_t number = *device.num_opened - 1;
  *const_cast<volatile int32_t*>(&device.report->out_of_range[number % kBlocks]) =
      *device.range_flag;
  *device.range_flag = 0;
  // What every earlier kernel wrote to mapped memory, and the flag, before the count.
  __threadfence_system();
  *const_cast<volatile int64_t*>(&device.report->num_closed) = number + 1;
}

}  // namespace

cudaError_t launch_open_step(const StepDevice& device, const StepView& view, cudaStream_t stream) {
  open_step_kernel<<<1, kThreads, 0, stream>>>(device, view.num_rows, view.num_runs,
                                               view.num_logit_rows);
  return cudaGetLastError();
}

cudaError_t launch_close_step(const StepDevice& device, cudaStream_t stream) {
  close_step_kernel<<<1, 1, 0, stream>>>(device);
  return cudaGetLastError();
}

}  // namespace sluice::cuda
