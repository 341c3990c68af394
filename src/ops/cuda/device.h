#pragma once
// The GPU this process runs on: one device, one stream, its memory. Host code only; kernels see none of this.

#include <cuda_runtime_api.h>

#include "ops/memory.h"

namespace sluice::cuda {

/// Stops the process with the call, the place and CUDA's word: after a failed call no result can be trusted.
void check_call(cudaError_t error, const char* call, const char* file, int line);
#define SLUICE_CUDA_CHECK(call) ::sluice::cuda::check_call((call), #call, __FILE__, __LINE__)

struct Device {
  cudaStream_t stream = nullptr;  // every op and copy, in order
  int num_sms = 0;
  int smem_bytes_max = 0;      // of a block
  int compute_capability = 0;  // 90 for 9.0
  std::string name;
};

/// Opens the GPU once. kUnsupported says what is missing: driver, device, or kernels for its compute capability.
Result<const Device*> open_device();
/// Pre: open_device() succeeded.
const Device& device();

const MemoryTable& device_memory();

}  // namespace sluice::cuda
