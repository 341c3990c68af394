#pragma once
// The second kernel: what is left of the tree, and the output gate.

#include "ops/cuda/attention_decode_common.cuh"
#include "ops/cuda/fragments.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::attn {

/// How a merge block is laid out: kSlice dims of a (row, head), at most kSpans partial results.
template <int kSlice_, int kSpans_>
struct MergeShape {
  static constexpr int kSlice = kSlice_;
  static constexpr int kSpans = kSpans_;
  static constexpr int kSlices = kHeadDim / kSlice;
  static constexpr int kLanes = kSlice / 4;                  // threads a node
  static constexpr int kNodes = kSlice == kHeadDim ? 4 : 8;  // nodes at a time
  static constexpr int kThreads = kLanes * kNodes;
};
using FewRows = MergeShape<64, 128>;
using ManyRows = MergeShape<256, 64>;

/// The partial results of one row and head, and where its outputs go.
struct MergeTask {
  int spans;            // 0: the row is padding
  int64_t row, column;  // of the first item
  int head, place, dim;
};

template <typename Shape>
__device__ inline MergeTask merge_task(const Args& args, const StepView& step, const Plan& plan,
                                       int idx) {
  const int num_heads = args.op.num_heads;
  const int thread = static_cast<int>(threadIdx.x);
  MergeTask task{};
  task.row = idx / (num_heads * Shape::kSlices);
  task.head = idx / Shape::kSlices % num_heads;
  // Partial results keep a spans warp's order: place 32 w + 4 g + i holds dim 32 w + g + 8 i.
  task.place = idx % Shape::kSlices * Shape::kSlice + thread % Shape::kLanes * 4;
  task.dim = task.place / 32 * 32 + task.place % 32 / 4;
  const int run_idx = step.rows[task.row].run;
  if (run_idx < 0) return task;
  const DeviceRun run = step.runs[run_idx];
  const int tile = plan.tile;
  const int group = args.plan.group;
  task.spans = nodes_of(leaves_of(run), plan.level);
  const int query = (static_cast<int>(task.row) - run.first_row) * group + task.head % group;
  const int tiles = ceil_div(run.num_rows * group, tile);
  const int first =
      plan.first_item[run_idx] + (task.head / group * tiles + query / tile) * task.spans;
  task.column = static_cast<int64_t>(first) * args.plan.tile + query % tile;
  return task;
}

__device__ __forceinline__ void store_output(const AttentionDecode& op, int64_t row, int column,
                                             bf16 value) {
  if (op.operands == nullptr) {
    op.out.data[row * op.out.stride + column] = value;
    return;
  }
  const uint32_t operand = operands_of(value.bits);
  if (is_out_of_range(operand)) raise_flag(op.range_flag);
  op.operands[row * op.num_heads * kHeadDim + operand_place(column)] =
      static_cast<uint16_t>(operand);
}

/// A block a (row, head, slice of dims), in turns: the rest of the tree, then the gate.
template <typename Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    merge_kernel(const __grid_constant__ Args args, const StepView step) {
  constexpr int kLanes = Shape::kLanes;
  constexpr int kNodes1 = Shape::kSpans / kRadix;
  constexpr int kNodes2 = kNodes1 / kRadix;
  __shared__ Plan plan;
  __shared__ State states[2][Shape::kSpans];
  __shared__ Factors factors[Shape::kSpans];
  __shared__ float4 nodes[kNodes1 + kNodes2][kLanes];  // of odd levels, then of even ones
  pdl_launch();
  const AttentionDecode& op = args.op;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int own = thread / kLanes;
  if (thread < kWarp) make_plan(args.plan, step, &plan);
  __syncthreads();
  const int num_tasks = step.num_rows * op.num_heads * Shape::kSlices;
  const int64_t stride = static_cast<int64_t>(args.plan.tile) * kHeadDim;
  bool waited = false;
#pragma unroll 1
  for (int idx = static_cast<int>(blockIdx.x); idx < num_tasks;
       idx += static_cast<int>(gridDim.x)) {
    const MergeTask task = merge_task<Shape>(args, step, plan, idx);
    if (!waited) pdl_wait();
    waited = true;
    if (task.spans == 0) continue;
    // 1. Ask for everything: the children of this thread's first node, maxima and sums, gates.
    const float* partial = args.partial + task.column * kHeadDim + task.place;
    float4 child[kRadix] = {};
#pragma unroll
    for (int i = 0; i < kRadix; ++i) {
      if (kRadix * own + i < task.spans) {
        child[i] = *reinterpret_cast<const float4*>(partial + (kRadix * own + i) * stride);
      }
    }
    for (int i = thread; i < task.spans; i += Shape::kThreads) {
      states[0][i] = args.states[task.column + static_cast<int64_t>(i) * args.plan.tile];
    }
    const bf16* gate_at =
        op.qg.data + task.row * op.qg.stride + (2 * task.head + 1) * kHeadDim + task.dim;
    const bf16 gate[4] = {gate_at[0], gate_at[8], gate_at[16], gate_at[24]};
    if (task.spans == 1 && thread < kLanes)
      nodes[kNodes1][thread] = child[0];  // only read back by itself
    __syncthreads();
    // 2. Level by level.
    int side = 0;
#pragma unroll 1
    for (int count = task.spans; count > 1; count = ceil_div(count, kRadix), side ^= 1) {
      const int parents = ceil_div(count, kRadix);
      for (int j = thread; j < parents; j += Shape::kThreads) {
        State parent{-INFINITY, 0.0f};
        for (int i = kRadix * j; i < min(kRadix * j + kRadix, count); ++i) {
          factors[i] = merge(&parent, states[side][i]);
        }
        states[side ^ 1][j] = parent;
      }
      __syncthreads();
#pragma unroll 1
      for (int j = own; j < parents; j += Shape::kNodes) {
#pragma unroll
        for (int i = 0; i < kRadix; ++i) {
          const int at = kRadix * j + i;
          if (at >= count || (count == task.spans && j == own)) continue;
          child[i] = count == task.spans ? *reinterpret_cast<const float4*>(partial + at * stride)
                                         : nodes[(side ^ 1) * kNodes1 + at][lane];
        }
        float4 sum = child[0];
#pragma unroll
        for (int i = 1; i < kRadix; ++i) {
          if (kRadix * j + i >= count) continue;
          const Factors f = factors[kRadix * j + i];
          sum = {merge(sum.x, child[i].x, f.old, f.add), merge(sum.y, child[i].y, f.old, f.add),
                 merge(sum.z, child[i].z, f.old, f.add), merge(sum.w, child[i].w, f.old, f.add)};
        }
        nodes[side * kNodes1 + j][lane] = sum;
      }
      __syncthreads();
    }
    // 3. The gate.
    if (thread < kLanes) {
      const float4 o = nodes[(side ^ 1) * kNodes1][thread];
      const float l = states[side][0].l;
      const float values[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        store_output(op, task.row, task.head * kHeadDim + task.dim + 8 * i,
                     gated(values[i], l, gate[i]));
      }
    }
    __syncthreads();
  }
}

}  // namespace sluice::cuda::attn
