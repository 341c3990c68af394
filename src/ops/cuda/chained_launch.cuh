#pragma once
// Host side of pdl.cuh: launches of a step's chain, one behind the other.

#include <cuda_runtime_api.h>

namespace sluice::cuda {

struct ChainedLaunch {
  dim3 grid;
  int num_threads;
  int smem_bytes = 0;    // dynamic shared memory of a block
  int cluster_size = 1;  // blocks along x; more than one asks for compute capability 9.0
};

/// Of the current device, which a process does not change: 90 for 9.0. 0 if CUDA does not say.
inline int compute_capability() {
  static const int found = [] {
    int device = 0, major = 0, minor = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    return 10 * major + minor;
  }();
  return found;
}

/// Of the current device.
inline cudaError_t count_multiprocessors(int* count) {
  int device = 0;
  const cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

/// Lets a kernel's blocks have so much dynamic shared memory; asks the driver only for more than before.
template <auto kKernel>
cudaError_t allow_shared_memory(int num_bytes) {
  static int allowed = 48 << 10;  // this kernel's; what needs no asking
  if (num_bytes <= allowed) return cudaSuccess;
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kKernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes);
  if (error == cudaSuccess) allowed = num_bytes;
  return error;
}

/// How many of the launch's clusters the device holds at once.
template <auto kKernel>
cudaError_t count_clusters(const ChainedLaunch& launch, int* count) {
  const cudaError_t error = allow_shared_memory<kKernel>(launch.smem_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(launch.cluster_size), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid;
  config.blockDim = dim3(static_cast<unsigned>(launch.num_threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.smem_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(count, kKernel, &config);
}

/// Launches a kernel that obeys pdl.cuh, so that it may begin while the one before it ends, where the GPU can do that (9.0 and later).
template <auto kKernel, typename... Args>
cudaError_t launch_chained(const ChainedLaunch& launch, cudaStream_t stream, const Args&... args) {
  const cudaError_t error = allow_shared_memory<kKernel>(launch.smem_bytes);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (compute_capability() >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cluster_size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {static_cast<unsigned>(launch.cluster_size), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.grid;
  config.blockDim = dim3(static_cast<unsigned>(launch.num_threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kKernel, args...);
}

}  // namespace sluice::cuda
