#pragma once
// How a step's attention is cut into work items: which positions of which run, for which KV head and tile of queries.
//
// The context is cut at absolute positions into leaves of 64, and a tree of radix 4 stands on them: nodes of level n hold
// 64 * 4^n positions. An item is a node of one level, chosen from the step block so that the multiprocessors are busy and the
// partial results few. The tree, and with it every bit of the result, is the same whatever level is chosen.

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/step_view.h"

namespace sluice::cuda::attn {

constexpr int kLeaf = 64;
constexpr int kRadix = 4;
constexpr int kMaxLevel = 5;  // 65,536 positions
constexpr int kMaxRuns = 64;
constexpr int kQueriesTogether = 8;  // columns of a matrix instruction

/// Host constants of a launch.
struct PlanLimits {
  int num_kv_heads;
  int group;  // query heads a KV head
  int tile;   // queries an item holds, at most
  int num_ctas;
  int items_max;  // partial results the scratch has room for
  int spans_max;  // items that a (run, KV head, tile) may have: what the merge can hold
  int level;      // -1: choose
};

/// In shared memory, the same in every CTA.
struct Plan {
  int level;
  int tile;  // queries of an item: all that it holds, or half of them where multiprocessors would be idle
  int first_item[kMaxRuns + 1];
  int first_leaf[kMaxRuns +
                 1];  // leaves times (KV head, tile) pairs before a run: the measure of work
};

__host__ __device__ inline int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}
__host__ __device__ inline int leaves_of(int level) {
  return 1 << (2 * level);
}

/// Nodes of a level that so many leaves need.
__host__ __device__ inline int nodes_of(int leaves, int level) {
  return (leaves + leaves_of(level) - 1) >> (2 * level);
}

__device__ inline int pairs_of(const PlanLimits& limits, const DeviceRun& run, int tile) {
  return limits.num_kv_heads * ceil_div(run.num_rows * limits.group, tile);
}
__device__ inline int leaves_of(const DeviceRun& run) {
  return run.num_rows == 0 ? 0 : ceil_div(run.position + run.num_rows, kLeaf);
}

/// By one whole warp; lane l looks after runs 2l and 2l + 1, and lanes 0 .. kMaxLevel weigh a level each.
__device__ inline void make_plan(const PlanLimits& limits, const StepView& step, Plan* plan) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int pairs[2], leaves[2];
  for (int i = 0; i < 2; ++i) {
    const int run = 2 * lane + i;
    pairs[i] = leaves[i] = 0;
    if (run < step.num_runs) {
      pairs[i] = pairs_of(limits, step.runs[run], limits.tile);
      leaves[i] = leaves_of(step.runs[run]);
    }
  }
  const int longest = __reduce_max_sync(kAll, max(leaves[0], leaves[1]));
  const int work = __reduce_add_sync(kAll, pairs[0] * leaves[0] + pairs[1] * leaves[1]);
  int items_here = 0;
  for (int level = 0; level <= kMaxLevel; ++level) {
    const int items = __reduce_add_sync(
        kAll, pairs[0] * nodes_of(leaves[0], level) + pairs[1] * nodes_of(leaves[1], level));
    if (lane == level) items_here = items;
  }
  // In leaves: rounds of the average item, what an item costs besides its keys, and the longest item's tail.
  const bool allowed = lane <= kMaxLevel && items_here <= limits.items_max &&
                       nodes_of(longest, lane) <= limits.spans_max && lane >= limits.level;
  const int mean = ceil_div(work, max(items_here, 1));
  const int fixed = 1 + limits.tile / 16;
  const int cost = ceil_div(items_here, limits.num_ctas) * (mean + fixed) +
                   min(leaves_of(min(lane, kMaxLevel)), longest) - mean;
  const int rank = limits.level >= 0 ? lane : min(cost, 1 << 26) * 8 + kMaxLevel - lane;
  const int best_rank = __reduce_min_sync(kAll, allowed ? rank : INT32_MAX);
  const unsigned chosen = __ballot_sync(kAll, allowed && rank == best_rank);
  const int best = chosen == 0 ? kMaxLevel : __ffs(static_cast<int>(chosen)) - 1;
  int tile = limits.tile;
  const int twice = 2 * __shfl_sync(kAll, items_here, best);
  if (tile % (2 * kQueriesTogether) == 0 && twice <= min(limits.num_ctas, limits.items_max)) {
    tile /= 2;
    for (int i = 0; i < 2; ++i) {
      if (pairs[i] > 0) pairs[i] = pairs_of(limits, step.runs[2 * lane + i], tile);
    }
  }
  int items[2], weight[2];
  for (int i = 0; i < 2; ++i) {
    items[i] = pairs[i] * nodes_of(leaves[i], best);
    weight[i] = pairs[i] * leaves[i];
  }
  int items_up_to = items[0] + items[1];
  int weight_up_to = weight[0] + weight[1];
#pragma unroll
  for (int reach = 1; reach < kWarp; reach *= 2) {
    const int a = __shfl_up_sync(kAll, items_up_to, reach);
    const int b = __shfl_up_sync(kAll, weight_up_to, reach);
    if (lane >= reach) {
      items_up_to += a;
      weight_up_to += b;
    }
  }
  plan->first_item[2 * lane + 2] = items_up_to;
  plan->first_item[2 * lane + 1] = items_up_to - items[1];
  plan->first_leaf[2 * lane + 2] = weight_up_to;
  plan->first_leaf[2 * lane + 1] = weight_up_to - weight[1];
  if (lane == 0) {
    plan->first_item[0] = plan->first_leaf[0] = 0;
    plan->level = best;
    plan->tile = tile;
  }
}

/// The run that owns place `at` of a prefix array; runs without work own nothing.
__device__ inline int run_at(const int* first, int num_runs, int at) {
  int low = 0;
  int high = num_runs - 1;
  while (low < high) {
    const int mid = (low + high) / 2;
    if (first[mid + 1] > at) {
      high = mid;
    } else {
      low = mid + 1;
    }
  }
  return low;
}

/// The first item that begins at or behind `at` leaves of work.
__device__ inline int item_at(const Plan& plan, const StepView& step, int at) {
  if (at >= plan.first_leaf[kMaxRuns]) return plan.first_item[kMaxRuns];
  const int run = run_at(plan.first_leaf, step.num_runs, at);
  const int leaves = leaves_of(step.runs[run]);
  const int within = at - plan.first_leaf[run];
  return plan.first_item[run] + within / leaves * nodes_of(leaves, plan.level) +
         nodes_of(within % leaves, plan.level);
}

/// A work item: positions of one run, for one KV head and one tile of its queries.
struct Item {
  DeviceRun run;
  int kv_head, tile;
  int num_queries;     // of the tile
  int leaf, leaf_end;  // of the context
};

__device__ __noinline__ inline Item item(const Plan& plan, const PlanLimits& limits,
                                         const StepView& step, int idx) {
  const int run_idx = run_at(plan.first_item, step.num_runs, idx);
  Item it;
  it.run = step.runs[run_idx];
  const int leaves = leaves_of(it.run);
  const int length = leaves_of(plan.level);
  const int spans = nodes_of(leaves, plan.level);
  const int within = idx - plan.first_item[run_idx];
  const int pair = within / spans;
  const int queries = it.run.num_rows * limits.group;
  const int tiles = ceil_div(queries, plan.tile);
  it.kv_head = pair / tiles;
  it.tile = pair % tiles;
  it.num_queries = min(plan.tile, queries - it.tile * plan.tile);
  it.leaf = (within % spans) * length;
  it.leaf_end = min(it.leaf + length, leaves);
  return it;
}

}  // namespace sluice::cuda::attn
