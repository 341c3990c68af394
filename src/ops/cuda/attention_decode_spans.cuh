#pragma once
// The first kernel: a block's share of the work items, leaf by leaf.

#include "ops/cuda/attention_decode_values.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::attn {

/// A place in the block's sequence of leaves.
struct Cursor {
  const Item* it;
  int idx, leaf;

  template <typename SharedT>
  __device__ __forceinline__ void next(const SharedT& shared) {
    if (++leaf < it->leaf_end) return;
    ++idx;
    it = &shared.items[idx % kItemsAhead];
    leaf = it->leaf;
  }
};

/// kTiles tiles of 8 queries an item.
template <int kTiles, int kStages>
__global__ void __launch_bounds__(kThreads, 1)
    spans_kernel(const __grid_constant__ Args args, const StepView step) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* shared = reinterpret_cast<Shared<kTiles, kStages>*>(memory);
  const AttentionDecode& op = args.op;
  const int thread = static_cast<int>(threadIdx.x);
  pdl_launch();

  // 1. The block's items: an equal share of the work.
  if (thread < kWarp) {
    make_plan(args.plan, step, &shared->plan);
    __syncwarp();
    if (thread < 2) {
      const auto work = static_cast<unsigned>(shared->plan.first_leaf[kMaxRuns]);
      const auto from = static_cast<int>(work * (blockIdx.x + threadIdx.x) / gridDim.x);
      (thread == 0 ? shared->first_item : shared->end_item) = item_at(shared->plan, step, from);
    }
    __syncwarp();
    const int idx = shared->first_item + thread;
    if (thread < kItemsAhead && idx < shared->end_item) {
      shared->items[idx % kItemsAhead] = item(shared->plan, args.plan, step, idx);
    }
  } else if (thread < kWarp + kHeadDim) {
    prefetch(op.q_norm + thread - kWarp);
    prefetch(op.k_norm + thread - kWarp);
  }
  __syncthreads();
  const int first_item = shared->first_item;
  const int end_item = shared->end_item;
  if (first_item >= end_item) {
    // Room for others. One block must wait, so that this kernel is not done before the ones before it.
    if (blockIdx.x == 0) pdl_wait();
    return;
  }
  const uint32_t ring = shared_address(shared->ring);
  Cursor at{&shared->items[first_item % kItemsAhead], first_item, 0};
  at.leaf = at.it->leaf;
  const auto next_stage = [](int stage) { return stage + 1 == kStages ? 0 : stage + 1; };

  // 2. Score team.
  if (thread < kTeam) {
    pdl_wait();
    load_queries<kTiles>(args, *at.it, shared);
    block_barrier();
    State open[kTiles];
    int parity = 0;
    for (int stage = 0;; stage = next_stage(stage), parity ^= 1) {
      block_barrier();
      if (at.idx >= end_item) return;
      const int num_tiles = ceil_div(at.it->num_queries, kColumns);
      scores<kTiles>(ring + (2 * stage + 1) * kHalfStage, num_tiles, shared);
      if (kStages == 1) {
        block_barrier();
      } else {
        team_barrier();
      }
      softmax(args, *at.it, at.leaf, at.idx, num_tiles, parity, open, shared);
      const Cursor last = at;
      at.next(*shared);
      if (at.idx < end_item && at.idx != last.idx) {
        const bool same = at.it->run.first_row == last.it->run.first_row &&
                          at.it->kv_head == last.it->kv_head && at.it->tile == last.it->tile;
        __syncwarp();  // a column's softmax and its query are one warp's
        if (!same) load_queries<kTiles>(args, *at.it, shared);
      }
    }
  }

  // 3. Value team. Old keys and values do not wait for this step's projections; new ones are written by every block that reads
  // them.
  const int64_t values_behind = to_values(op.kv);
  Cursor ahead = at;
  Source before{nullptr, -1};  // of the leaf whose values the next copy brings
  int stage_ahead = 0;
  // The short ring holds less than the memory's latency asks for: its next copy shall come from L2.
  const bool hints = kStages == 2 && thread == kTeam;
  const auto copy = [&] {
    const uint32_t stage = ring + 2 * stage_ahead * kHalfStage;
    stage_ahead = next_stage(stage_ahead);
    if (before.last >= 0) copy_rows(stage, before.keys + values_behind, before.last);
    before.last = -1;
    if (ahead.idx < end_item) {
      before = source(op, step, *ahead.it, ahead.leaf);
      copy_rows(stage + kHalfStage, before.keys, before.last);
      ahead.next(*shared);
      if (hints) {
        prefetch_bulk(before.keys + values_behind, kHalfStage);
        if (ahead.idx < end_item) {
          prefetch_bulk(source(op, step, *ahead.it, ahead.leaf).keys, kHalfStage);
        }
      }
    }
    commit_copies();
  };
  constexpr int kAhead = kStages == 1 ? 1 : kStages - 1;  // copies on their way when a leaf begins
  int copies = 0;
  while (copies < kAhead && ahead.idx < end_item &&
         (ahead.leaf + 1) * kLeaf <= ahead.it->run.position) {
    copy();
    ++copies;
  }
  pdl_wait();
#pragma unroll 1
  for (int idx = first_item; idx < end_item; ++idx) {
    write_new_rows(op, step,
                   idx < first_item + kItemsAhead ? shared->items[idx % kItemsAhead]
                                                  : item(shared->plan, args.plan, step, idx));
  }
  block_barrier();
  for (; copies < kAhead; ++copies) copy();
  Outputs sums[kTiles];
  Cursor last{nullptr, 0, 0};
  int parity = 1;  // of the leaf before
  for (int stage = 0;; stage = next_stage(stage), parity ^= 1) {
    wait_copies<kAhead - 1>();
    block_barrier();
    if (kStages > 1) copy();
    if (last.it != nullptr) {
      const Item& it = *last.it;
      const int num_tiles = ceil_div(it.num_queries, kColumns);
      outputs<kTiles>(ring + 2 * stage * kHalfStage, num_tiles, parity,
                      first_child(it, last.leaf, 0), *shared, sums);
      if (last.leaf % kRadix == kRadix - 1 || last.leaf + 1 == it.leaf_end) {
        carry<kTiles>(args, it, last.leaf, last.idx, num_tiles, parity, *shared, sums);
      }
    }
    if (at.idx >= end_item) return;
    if (kStages == 1) {
      block_barrier();
      copy();
    }
    if (last.it != nullptr && last.idx != at.idx && last.idx + kItemsAhead < end_item) {
      if (kStages > 1) value_barrier();  // other warps may still be at the last leaf of *last.it
      if (thread == kTeam) {
        shared->items[last.idx % kItemsAhead] =
            item(shared->plan, args.plan, step, last.idx + kItemsAhead);
      }
    }
    last = at;
    at.next(*shared);
  }
}

}  // namespace sluice::cuda::attn
