// Copies inside the device's memory as kernels of our own.
#include "ops/cuda/launch.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr size_t kBlocksMax = 1024;

/// Words of the widest kind that addresses and size allow; null `from`: zeros.
template <typename Word>
__global__ void copy_kernel(Word* to, const Word* from, size_t count) {
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    to[i] = from == nullptr ? Word{} : from[i];
  }
}

template <typename Word>
cudaError_t launch_words(void* to, const void* from, size_t num_bytes, cudaStream_t stream) {
  const size_t count = num_bytes / sizeof(Word);
  const size_t blocks = (count + kThreads - 1) / kThreads;
  copy_kernel<<<static_cast<unsigned>(blocks < kBlocksMax ? blocks : kBlocksMax), kThreads, 0,
                stream>>>(static_cast<Word*>(to), static_cast<const Word*>(from), count);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_copy(void* to, const void* from, size_t num_bytes, cudaStream_t stream) {
  if (num_bytes == 0) return cudaSuccess;
  const auto misaligned = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                          static_cast<uintptr_t>(num_bytes);
  if (misaligned % sizeof(uint4) == 0) return launch_words<uint4>(to, from, num_bytes, stream);
  return launch_words<uint8_t>(to, from, num_bytes, stream);
}

cudaError_t launch_clear(void* to, size_t num_bytes, cudaStream_t stream) {
  return launch_copy(to, nullptr, num_bytes, stream);
}

cudaError_t check_device_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, copy_kernel<uint4>);
}

}  // namespace sluice::cuda
