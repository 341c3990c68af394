// Implements attn_prepare and attention of ops/attention.h for up to 64 rows, as one composition of two kernels.
//
// Idea: keys and values are the 16-row operand of the matrix instruction and queries its 8 columns. A block streams leaves of 64
// positions through a ring in shared memory; every byte is read once for all rows of a run and all query heads of a KV head. Two
// teams of eight warps work side by side, with one common barrier a leaf:
//   score team: scores of leaf j (a warp has 16 keys and half the dims), softmax of leaf j (a warp has a column of every tile)
//   value team: copies of a leaf to come into the freed stage, outputs of leaf j - 1 (a warp has 32 dims)
//
// Rounding: q and k as prepare_kernel of attention.cu, bit for bit; s = rb( rb(q.k) / 16 ). Probabilities are taken relative to
// the leaf's maximum and rounded once, p = rb(exp(s - m)): the noise of the oracle's own rounding of p. The sum l adds the rounded
// p, so weights sum to one. o and l in fp32; out = rb( rb(o / l) * rb(sigmoid(gate)) ).
//
// Order: a leaf's (m, l, o) is formed by itself, and nodes of the tree of attention_decode_plan.cuh add their children in order,
// as (m, l, o) <- (M, l exp(m - M) + l' exp(m' - M), o exp(m - M) + o' exp(m' - M)) with M = max(m, m'), in blocks and merge alike.
// A key behind a row's own position weighs exactly 0, an empty leaf changes nothing: bits depend on the row's own context only.
#include <algorithm>

#include "ops/cuda/attention_decode.h"
#include "ops/cuda/attention_decode_merge.cuh"
#include "ops/cuda/attention_decode_spans.cuh"
#include "ops/cuda/chained_launch.cuh"

namespace sluice::cuda {
namespace attn {
namespace {

/// Host constants of a bucket; bits do not depend on them.
struct Config {
  int tiles;   // of 8 queries an item
  int stages;  // of the ring
  size_t shared_bytes;
  bool few_rows;
};

template <int kTiles, int kStages>
Config config(int bucket) {
  return {kTiles, kStages, sizeof(Shared<kTiles, kStages>), bucket <= 2};
}

/// The deepest ring that the device has shared memory for; 64 KB a stage.
Config config_of(int bucket) {
  int device = 0;
  int limit = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  Config best = bucket == 1   ? config<1, 3>(bucket)
                : bucket <= 4 ? config<3, 3>(bucket)
                              : config<6, 2>(bucket);
  if (best.shared_bytes > static_cast<size_t>(limit)) {
    best = bucket == 1 ? config<1, 1>(bucket) : config<3, 1>(bucket);
  }
  return best;
}

int items_max(int bucket, int num_kv_heads, int64_t context_max) {
  const auto leaves = static_cast<int>((context_max + kLeaf - 1) / kLeaf);
  const int longest = leaves_of(kMaxLevel);
  const int needed = bucket * num_kv_heads * ceil_div(leaves, longest);
  const int wanted = std::min(1024, bucket * num_kv_heads * leaves);
  return needed > wanted ? needed : wanted;
}

template <int kTiles, int kStages>
cudaError_t launch_spans(int grid, cudaStream_t stream, const Args& args, const StepView& step) {
  constexpr auto kBytes = static_cast<int>(sizeof(Shared<kTiles, kStages>));
  return launch_chained<spans_kernel<kTiles, kStages>>(
      {dim3(static_cast<unsigned>(grid)), kThreads, kBytes}, stream, args, step);
}

cudaError_t launch_spans(const Config& config, int grid, cudaStream_t stream, const Args& args,
                         const StepView& step) {
  if (config.stages == 1) {
    return config.tiles == 1 ? launch_spans<1, 1>(grid, stream, args, step)
                             : launch_spans<3, 1>(grid, stream, args, step);
  }
  switch (config.tiles) {
    case 1:
      return launch_spans<1, 3>(grid, stream, args, step);
    case 3:
      return launch_spans<3, 3>(grid, stream, args, step);
    default:
      return launch_spans<6, 2>(grid, stream, args, step);
  }
}

template <typename Shape>
cudaError_t launch_merge(cudaStream_t stream, const Args& args, const StepView& step) {
  const int tasks = step.num_rows * args.op.num_heads * Shape::kSlices;
  const int grid = std::min(tasks, 4 * args.op.num_sms);
  return launch_chained<merge_kernel<Shape>>({dim3(static_cast<unsigned>(grid)), Shape::kThreads},
                                             stream, args, step);
}

}  // namespace
}  // namespace attn

size_t attention_decode_scratch_bytes(int bucket, int num_heads, int num_kv_heads,
                                      int64_t context_max, int num_sms) {
  (void)num_heads;
  const auto columns = static_cast<size_t>(attn::config_of(bucket).tiles * attn::kColumns);
  const auto items = static_cast<size_t>(attn::items_max(bucket, num_kv_heads, context_max));
  const auto open = static_cast<size_t>(num_sms) * (attn::kMaxLevel - 1);
  return (items + open) * columns * attn::kHeadDim * sizeof(float) +
         items * columns * sizeof(attn::State);
}

cudaError_t launch_attention_decode(const AttentionDecode& op, const StepView& step,
                                    cudaStream_t stream) {
  const int bucket = step.num_rows;
  const attn::Config config = attn::config_of(bucket);
  const int columns = config.tiles * attn::kColumns;
  const int items = attn::items_max(bucket, op.num_kv_heads, op.context_max);
  attn::Args args{};
  args.op = op;
  args.plan = {op.num_kv_heads, op.num_heads / op.num_kv_heads,
               columns,         op.num_sms,
               items,           config.few_rows ? attn::FewRows::kSpans : attn::ManyRows::kSpans,
               op.span_level};
  args.partial = op.scratch;
  args.open = args.partial + static_cast<int64_t>(items) * columns * attn::kHeadDim;
  args.states = reinterpret_cast<attn::State*>(args.open + static_cast<int64_t>(op.num_sms) *
                                                               (attn::kMaxLevel - 1) * columns *
                                                               attn::kHeadDim);
  const cudaError_t error = attn::launch_spans(config, op.num_sms, stream, args, step);
  if (error != cudaSuccess) return error;
  return config.few_rows ? attn::launch_merge<attn::FewRows>(stream, args, step)
                         : attn::launch_merge<attn::ManyRows>(stream, args, step);
}

}  // namespace sluice::cuda
