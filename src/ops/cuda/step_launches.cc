// Implements StepLaunches of bench_support.h: a step caught as a graph, and cut down to the launches that are wanted.
#include <cuda_runtime.h>

#include <algorithm>

#include "ops/cuda/bench_support.h"
#include "ops/cuda/device.h"
#include "ops/cuda/graph_time.h"

namespace sluice::cuda {
namespace {

cudaStream_t stream() {
  return device().stream;
}

// CUDA 13 gave these calls one name; 12 has them under numbers.
cudaError_t caught_graph(cudaGraph_t* graph) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream(), &status, nullptr, graph, nullptr, nullptr, nullptr);
#else
  return cudaStreamGetCaptureInfo_v2(stream(), &status, nullptr, graph, nullptr, nullptr);
#endif
}

cudaError_t graph_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                        cudaGraphEdgeData* data, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}

cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to,
                     const cudaGraphEdgeData& data) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddDependencies(graph, &from, &to, &data, 1);
#else
  return cudaGraphAddDependencies_v2(graph, &from, &to, &data, 1);
#endif
}

/// A graph's nodes from its first to its last; each but the first with the edge that leads to it.
struct Chain {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<cudaGraphEdgeData> edges;
};

Chain chain_of(cudaGraph_t graph) {
  size_t num_nodes = 0;
  size_t num_edges = 0;
  SLUICE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  SLUICE_CUDA_CHECK(graph_edges(graph, nullptr, nullptr, nullptr, &num_edges));
  SLUICE_CHECK_GT(num_nodes, size_t{0});
  SLUICE_CHECK_EQ(num_edges, num_nodes - 1);
  std::vector<cudaGraphNode_t> from(num_edges);
  std::vector<cudaGraphNode_t> to(num_edges);
  std::vector<cudaGraphEdgeData> data(num_edges);
  SLUICE_CUDA_CHECK(graph_edges(graph, from.data(), to.data(), data.data(), &num_edges));
  size_t num_roots = 1;
  Chain chain;
  chain.nodes.resize(1);
  SLUICE_CUDA_CHECK(cudaGraphGetRootNodes(graph, chain.nodes.data(), &num_roots));
  SLUICE_CHECK_EQ(num_roots, size_t{1});
  chain.edges.resize(1);
  while (chain.nodes.size() < num_nodes) {
    const auto edge = std::find(from.begin(), from.end(), chain.nodes.back());
    SLUICE_CHECK(edge != from.end());
    const auto i = static_cast<size_t>(edge - from.begin());
    chain.nodes.push_back(to[i]);
    chain.edges.push_back(data[i]);
  }
  return chain;
}

StepLaunch describe(cudaGraphNode_t node, const cudaGraphEdgeData& edge) {
  StepLaunch launch;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  SLUICE_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeKernel) {
    launch.kernel = "no kernel";  // a copy or a memset
    return launch;
  }
  cudaKernelNodeParams params = {};
  SLUICE_CUDA_CHECK(cudaGraphKernelNodeGetParams(node, &params));
  const char* name = nullptr;
  SLUICE_CUDA_CHECK(cudaFuncGetName(&name, params.func));
  launch.kernel = name;
  launch.grid = static_cast<int>(params.gridDim.x * params.gridDim.y * params.gridDim.z);
  launch.threads = static_cast<int>(params.blockDim.x * params.blockDim.y * params.blockDim.z);
  launch.smem_bytes = static_cast<int>(params.sharedMemBytes);
  launch.is_chained = edge.type == cudaGraphDependencyTypeProgrammatic;
  return launch;
}

}  // namespace

struct StepLaunches::Impl {
  cudaGraph_t graph = nullptr;
  Chain chain;
  std::vector<StepLaunch> launches;
};

StepLaunches::StepLaunches() : impl_(std::make_unique<Impl>()) {}
StepLaunches::~StepLaunches() {
  SLUICE_CUDA_CHECK(cudaGraphDestroy(impl_->graph));
}

void StepLaunches::begin_catching() {
  SLUICE_CUDA_CHECK(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed));
}

int StepLaunches::num_caught() {
  cudaGraph_t graph = nullptr;
  size_t num_nodes = 0;
  SLUICE_CUDA_CHECK(caught_graph(&graph));
  SLUICE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &num_nodes));
  return static_cast<int>(num_nodes);
}

std::unique_ptr<StepLaunches> StepLaunches::end_catching() {
  std::unique_ptr<StepLaunches> caught(new StepLaunches);
  Impl& impl = *caught->impl_;
  SLUICE_CUDA_CHECK(cudaStreamEndCapture(stream(), &impl.graph));
  cudaGraphExec_t exec = nullptr;
  SLUICE_CUDA_CHECK(cudaGraphInstantiate(&exec, impl.graph, 0));
  SLUICE_CUDA_CHECK(cudaGraphLaunch(exec, stream()));
  SLUICE_CUDA_CHECK(cudaStreamSynchronize(stream()));
  SLUICE_CUDA_CHECK(cudaGraphExecDestroy(exec));
  impl.chain = chain_of(impl.graph);
  for (size_t i = 0; i < impl.chain.nodes.size(); ++i) {
    impl.launches.push_back(describe(impl.chain.nodes[i], impl.chain.edges[i]));
  }
  return caught;
}

std::span<const StepLaunch> StepLaunches::all() const {
  return impl_->launches;
}

double StepLaunches::chain_us(std::span<const int> launches, int num_rounds) const {
  cudaGraph_t part = nullptr;
  SLUICE_CUDA_CHECK(cudaGraphClone(&part, impl_->graph));
  std::vector<cudaGraphNode_t> kept;
  size_t next = 0;
  for (size_t i = 0; i < impl_->chain.nodes.size(); ++i) {
    cudaGraphNode_t node = nullptr;
    SLUICE_CUDA_CHECK(cudaGraphNodeFindInClone(&node, impl_->chain.nodes[i], part));
    if (next == launches.size() || launches[next] != static_cast<int>(i)) {
      SLUICE_CUDA_CHECK(cudaGraphDestroyNode(node));
      continue;
    }
    const bool is_behind_kept = next > 0 && launches[next - 1] + 1 == launches[next];
    if (!kept.empty() && !is_behind_kept) {
      SLUICE_CUDA_CHECK(add_edge(part, kept.back(), node, impl_->chain.edges[i]));
    }
    kept.push_back(node);
    ++next;
  }
  SLUICE_CHECK_EQ(kept.size(), launches.size());
  const double us = graph_us(part, num_rounds);
  SLUICE_CUDA_CHECK(cudaGraphDestroy(part));
  return us;
}

}  // namespace sluice::cuda
