#pragma once
// The score team: queries, dot products, softmax of a leaf, states of the tree's nodes.

#include "ops/cuda/attention_decode_rows.cuh"

namespace sluice::cuda::attn {

static_assert(kWarps == kColumns);  // a warp has one column of every query tile in the softmax

// Strides that keep matrix loads free of bank conflicts.
constexpr int kQStride = kHeadDim + 8;
constexpr int kSStride = kLeaf + 4;
constexpr int kPRowBytes = kLeaf * 2;

constexpr int kItemsAhead = 8;

template <int kTiles, int kStages>
struct Shared {
  static constexpr int kQueries = kTiles * kColumns;
  // Of stage j: values of leaf j - 1, keys of leaf j.
  alignas(1024) unsigned char ring[kStages][2][kHalfStage];
  Item items[kItemsAhead];  // by index mod kItemsAhead
  alignas(16) uint16_t q[kQueries * kQStride];
  // Per parity of the leaf: probabilities, 16-byte chunk n of column c at n ^ (c mod 8).
  alignas(128) unsigned char p[2][kQueries * kPRowBytes];
  float s[2][kQueries * kSStride];  // per half of the dims
  // Per parity of the leaf and level of the child: [0] of the leaf in its node of level 1.
  alignas(16) Factors factors[2][kMaxLevel][kQueries];
  State states[kMaxLevel - 1][kQueries];  // of open nodes of levels 2 ..; a column's warp only
  Plan plan;
  int first_item, end_item;
  int num_keys[kQueries];  // a query sees; 0 where there is none
};

/// Normed, rotated queries of an item's tile; columns without a query are zero.
template <int kTiles, typename SharedT>
__device__ __noinline__ void load_queries(const Args& args, const Item& it, SharedT* shared) {
  const AttentionDecode& op = args.op;
  const int lane = lane_id();
  const DeviceRun& run = it.run;
  const int group = args.plan.group;
#pragma unroll 1
  for (int t = 0; t < kTiles; ++t) {
    const int column = t * kColumns + warp_id();
    const int query = it.tile * shared->plan.tile + column;
    bf16 q[kWarps] = {};
    if (lane == 0) shared->num_keys[column] = 0;
    if (column < it.num_queries) {
      const int row = query / group;
      const int head = it.kv_head * group + query % group;
      const int64_t at = run.position + row;
      if (lane == 0) shared->num_keys[column] = run.position + row + 1;
      norm_and_rotate(op.qg.data + (run.first_row + row) * op.qg.stride + head * 2 * kHeadDim,
                      op.q_norm, op.eps, op.cos.data + at * op.cos.stride,
                      op.sin.data + at * op.sin.stride, q);
    }
#pragma unroll
    for (int i = 0; i < kWarps; ++i) shared->q[column * kQStride + kWarp * i + lane] = q[i].bits;
  }
}

/// Dot products over half the dims of the warp's 16 keys with kCount tiles of queries.
template <int kCount, typename SharedT>
__device__ __forceinline__ void scores_of(uint32_t keys, int tile, SharedT* shared) {
  const int warp = warp_id();
  const int lane = lane_id();
  const int half = warp / 4;
  const int row = warp % 4 * 16 + lane % 16;
  // Rows are 512-byte aligned, so chunk n ^ (row mod 8) of a row is an exclusive or on the address.
  const uint32_t k_row = keys + row * kRowBytes + ((half * 16 + lane / 16) ^ row % 8) * 16;
  const uint32_t q = shared_address(shared->q + (tile * kColumns + lane % 8) * kQStride +
                                    half * (kHeadDim / 2) + lane / 8 * 8);
  float even[kCount][4] = {}, odd[kCount][4] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint4 a0 = load_matrices(k_row ^ (j * 64));
    const uint4 a1 = load_matrices(k_row ^ (j * 64 + 32));
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      const uint4 b = load_matrices(q + (t * kColumns * kQStride + 32 * j) * 2);
      mma(even[t], a0, b.x, b.y);
      mma(odd[t], a1, b.z, b.w);
    }
  }
  float* s =
      shared->s[half] + (tile * kColumns + lane % 4 * 2) * kSStride + warp % 4 * 16 + lane / 4;
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    float* to = s + t * kColumns * kSStride;
    to[0] = even[t][0] + odd[t][0];
    to[kSStride] = even[t][1] + odd[t][1];
    to[8] = even[t][2] + odd[t][2];
    to[kSStride + 8] = even[t][3] + odd[t][3];
  }
}

/// Of `num_tiles` tiles; more may be computed.
template <int kTiles, typename SharedT>
__device__ __forceinline__ void scores(uint32_t keys, int num_tiles, SharedT* shared) {
  constexpr int kSome = kTiles < 3 ? kTiles : 3;
  if (kTiles == 1 || num_tiles == 1) {
    scores_of<1>(keys, 0, shared);
  } else if (num_tiles <= kSome) {
    scores_of<kSome>(keys, 0, shared);
  } else {
    scores_of<kTiles>(keys, 0, shared);
  }
}

/// How far up the tree a leaf completes nodes, within its item: it ends nodes of levels 1 .. completed.
__device__ __forceinline__ int completed(const Item& it, int leaf, int level) {
  if (leaf + 1 == it.leaf_end) return max(level, 1);
  int up = 0;
  while (((leaf + 1) & (leaves_of(up + 1) - 1)) == 0) ++up;
  return up;
}

/// Whether the node of level n that holds a leaf is the first child, within the item, of its parent.
__device__ __forceinline__ bool first_child(const Item& it, int leaf, int n) {
  const int node = leaf >> (2 * n);
  return node % kRadix == 0 || node << (2 * n) == it.leaf;
}

/// Probabilities of the leaf for the warp's columns of kCount tiles, and the factors that bring its outputs into the node of level 1.
/// Lane has keys 2 lane, + 1. `open` holds the columns' nodes of level 1.
template <int kCount, typename SharedT>
__device__ __forceinline__ void softmax_of(int leaf, bool begins, int parity, int tile, State* open,
                                           SharedT* shared) {
  const int lane = lane_id();
  const int column = tile * kColumns + warp_id();
  float s[kCount][2];
  State node[kCount];
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    const int at = (column + t * kColumns) * kSStride + 2 * lane;
    const float2 a = *reinterpret_cast<const float2*>(&shared->s[0][at]);
    const float2 b = *reinterpret_cast<const float2*>(&shared->s[1][at]);
    const int keys = shared->num_keys[column + t * kColumns] - leaf * kLeaf;
    // A power of two: the contract's second rounding changes nothing.
    constexpr float kScale = 1.0f / 16.0f;
    const uint32_t dots = narrow_pair(a.x + b.x, a.y + b.y);
    s[t][0] = 2 * lane < keys ? low_bf16(dots) * kScale : -INFINITY;
    s[t][1] = 2 * lane + 1 < keys ? high_bf16(dots) * kScale : -INFINITY;
  }
#pragma unroll
  for (int t = 0; t < kCount; ++t) node[t].m = warp_max(fmaxf(s[t][0], s[t][1]));
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    const float max = node[t].m == -INFINITY ? 0.0f : node[t].m;
    const uint32_t p = narrow_pair(fast_exp(s[t][0] - max), fast_exp(s[t][1] - max));
    *reinterpret_cast<uint32_t*>(shared->p[parity] + (column + t * kColumns) * kPRowBytes +
                                 (lane / 4 ^ warp_id()) * 16 + lane % 4 * 4) = p;
    node[t].l = low_bf16(p) + high_bf16(p);
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
#pragma unroll
    for (int t = 0; t < kCount; ++t) node[t].l += __shfl_xor_sync(0xffffffffu, node[t].l, step);
  }
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    if (begins) open[t] = {-INFINITY, 0.0f};
    const Factors f = merge(&open[t], node[t]);
    if (lane == 0) shared->factors[parity][0][column + t * kColumns] = f;
  }
}

template <int kTiles, typename SharedT>
__device__ __forceinline__ void softmax(const Args& args, const Item& it, int leaf, int item_idx,
                                        int num_tiles, int parity, State (&open)[kTiles],
                                        SharedT* shared) {
  const bool begins = first_child(it, leaf, 0);
  if (kTiles == 1 || num_tiles == 1) {
    softmax_of<1>(leaf, begins, parity, 0, open, shared);
  } else {
    constexpr int kAtOnce = kTiles < 3 ? kTiles : 3;
#pragma unroll
    for (int t = 0; t < kTiles; t += kAtOnce) {
      if (t < num_tiles) softmax_of<kAtOnce>(leaf, begins, parity, t, open + t, shared);
    }
  }
  const int level = shared->plan.level;
  const int up = completed(it, leaf, level);
  if (up == 0) return;
  // Nodes that end with this leaf.
  const bool ends = leaf + 1 == it.leaf_end;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (t >= num_tiles || lane_id() != 0) break;
    const int column = t * kColumns + warp_id();
    State node = open[t];
#pragma unroll 1
    for (int n = 1; n <= up && n < level; ++n) {
      State* parent = &shared->states[n - 1][column];
      if (first_child(it, leaf, n)) *parent = {-INFINITY, 0.0f};
      shared->factors[parity][n][column] = merge(parent, node);
      node = *parent;
    }
    if (ends) args.states[static_cast<int64_t>(item_idx) * SharedT::kQueries + column] = node;
  }
}

}  // namespace sluice::cuda::attn
