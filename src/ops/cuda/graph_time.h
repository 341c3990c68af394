#pragma once
// How long a graph's work takes: for benchmarks.

#include <cuda_runtime_api.h>

namespace sluice::cuda {

/// Microseconds of running `graph` once, median of num_rounds behind one another on the device's stream, after some that are not timed.
double graph_us(cudaGraph_t graph, int num_rounds);

}  // namespace sluice::cuda
