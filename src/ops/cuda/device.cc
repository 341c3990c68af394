#include "ops/cuda/device.h"

#include <cuda_runtime.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/pack.h"

namespace sluice::cuda {
namespace {

constexpr int kComputeCapabilityMin = 80;

Status call_status(cudaError_t error, std::string_view what) {
  return unsupported("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

Result<Device> find_device() {
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version == 0) {
    return unsupported("--device cuda: this machine has no NVIDIA driver; use --device cpu");
  }
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return call_status(error, "no GPU can be used");
  }
  if (count == 0) return unsupported("no GPU can be used: the driver lists none");
  Device found;
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, 0); error != cudaSuccess) {
    return call_status(error, "GPU 0 cannot be asked for its properties");
  }
  found.name = properties.name;
  found.num_sms = properties.multiProcessorCount;
  found.smem_bytes_max = static_cast<int>(properties.sharedMemPerBlockOptin);
  found.compute_capability = 10 * properties.major + properties.minor;
  if (found.compute_capability < kComputeCapabilityMin) {
    return unsupported("GPU 0, {}, has compute capability {}.{}; this build needs 8.0 or later",
                       found.name, properties.major, properties.minor);
  }
  if (const cudaError_t error = cudaSetDevice(0); error != cudaSuccess) {
    return call_status(error, "GPU 0 cannot be opened");
  }
  if (const cudaError_t error = check_device_code(); error != cudaSuccess) {
    return unsupported(
        "GPU 0, {} (compute capability {}.{}): this build holds no code for it ({}); build again "
        "on "
        "this machine, or with -DCMAKE_CUDA_ARCHITECTURES={}",
        found.name, properties.major, properties.minor, cudaGetErrorName(error),
        found.compute_capability);
  }
  if (const cudaError_t error = cudaStreamCreateWithFlags(&found.stream, cudaStreamNonBlocking);
      error != cudaSuccess) {
    return call_status(error, "GPU 0 gives no stream");
  }
  return found;
}

const Result<Device>& the_device() {
  static const Result<Device> opened = find_device();
  return opened;
}

void release_private(std::byte* data, size_t) {
  SLUICE_CUDA_CHECK(cudaFree(data));
}

void release_shared(std::byte* data, size_t) {
  SLUICE_CUDA_CHECK(cudaFreeHost(data));
}

Result<Buffer> allocate(size_t num_bytes, std::string_view what, MemoryKind kind) {
  if (num_bytes == 0) return Buffer();
  void* data = nullptr;
  const bool is_shared = kind == MemoryKind::kShared;
  const cudaError_t error = is_shared ? cudaHostAlloc(&data, num_bytes, cudaHostAllocMapped)
                                      : cudaMalloc(&data, num_bytes);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();  // an allocation that failed leaves the device usable
    return resource_exhausted("{}: the GPU refused {} MiB of {} memory: {}", what, num_bytes >> 20,
                              is_shared ? "pinned" : "its", cudaGetErrorString(error));
  }
  SLUICE_CUDA_CHECK(cudaMemsetAsync(data, 0, num_bytes, device().stream));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
  return Buffer::adopt(static_cast<std::byte*>(data), num_bytes,
                       is_shared ? release_shared : release_private);
}

constexpr size_t kStagedBytesMin = size_t{4} << 20;

void upload(void* to, const void* from, size_t num_bytes) {
  if (num_bytes >= kStagedBytesMin && copy_to_device(to, from, num_bytes)) return;
  SLUICE_CUDA_CHECK(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyHostToDevice, device().stream));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
}

void download(void* to, const void* from, size_t num_bytes) {
  SLUICE_CUDA_CHECK(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, device().stream));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(device().stream));
}

void copy(void* to, const void* from, size_t num_bytes) {
  SLUICE_CUDA_CHECK(launch_copy(to, from, num_bytes, device().stream));
}

void clear(void* to, size_t num_bytes) {
  SLUICE_CUDA_CHECK(launch_clear(to, num_bytes, device().stream));
}

}  // namespace

void check_call(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  check_failed(
      file, line,
      fmt::format("{}: {} ({})", call, cudaGetErrorString(error), cudaGetErrorName(error)));
}

Result<const Device*> open_device() {
  const Result<Device>& opened = the_device();
  if (!opened.ok()) return opened.status();
  return &*opened;
}

const Device& device() {
  return *the_device();
}

const MemoryTable& device_memory() {
  static constexpr MemoryTable kTable = {.is_host = false,
                                         .allocate = allocate,
                                         .upload = upload,
                                         .download = download,
                                         .copy = copy,
                                         .clear = clear};
  return kTable;
}

}  // namespace sluice::cuda
