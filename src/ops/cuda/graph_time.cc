#include "ops/cuda/graph_time.h"

#include <algorithm>

#include "ops/cuda/bench_support.h"
#include "ops/cuda/device.h"

namespace sluice::cuda {

double graph_us(cudaGraph_t graph, int num_rounds) {
  constexpr int kWarmUps = 3;
  cudaGraphExec_t exec = nullptr;
  SLUICE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  GpuClock clock;
  for (int i = 0; i < kWarmUps + num_rounds; ++i) {
    if (i >= kWarmUps) clock.mark();
    SLUICE_CUDA_CHECK(cudaGraphLaunch(exec, device().stream));
  }
  clock.mark();
  std::vector<double> times = clock.intervals_us();
  SLUICE_CUDA_CHECK(cudaGraphExecDestroy(exec));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace sluice::cuda
