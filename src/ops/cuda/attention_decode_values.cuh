#pragma once
// The value team: outputs of a leaf, and their way up the tree.

#include "ops/cuda/attention_decode_scores.cuh"

namespace sluice::cuda::attn {

/// What a lane holds of a tile's outputs: [i] of column 2c and [4 + i] of column 2c + 1, dim 32 warp + g + 8 i.
struct Outputs {
  float o[8];
};

__device__ __forceinline__ void merge(Outputs* into, const Outputs& child, const Factors* factors) {
  const Factors a = factors[0];
  const Factors b = factors[1];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    into->o[i] = merge(into->o[i], child.o[i], a.old, a.add);
    into->o[i + 4] = merge(into->o[i + 4], child.o[i + 4], b.old, b.add);
  }
}

/// 64 values of the warp's 32 dims, dims as rows.
struct Values {
  uint4 part[4][2];  // [16 keys][16 dims]

  __device__ __forceinline__ void load(uint32_t values) {
    const int lane = lane_id();
    const uint32_t row = values + (lane % 8 + lane / 16 * 8) * kRowBytes +
                         ((warp_id() * 4 + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int d = 0; d < 2; ++d) {
        part[s][d] = load_matrices_transposed((row ^ (d * 32)) + s * 16 * kRowBytes);
      }
    }
  }
};

/// Outputs of a leaf join those of its node, for kCount tiles.
template <int kCount, typename SharedT>
__device__ __forceinline__ void outputs_of(const Values& values, int parity, int tile, bool begins,
                                           const SharedT& shared, Outputs* sums) {
  const int lane = lane_id();
  const Factors* factors = shared.factors[parity][0] + tile * kColumns + 2 * (lane % 4);
  const uint32_t p = shared_address(shared.p[parity]) + (tile * kColumns + lane % 8) * kPRowBytes +
                     (lane / 8 ^ lane % 8) * 16;
#pragma unroll
  for (int t = 0; t < kCount; ++t) {
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const uint4 b = load_matrices((p ^ (u * 64)) + t * kColumns * kPRowBytes);
      mma(first, values.part[2 * u][0], b.x, b.y);
      mma(second, values.part[2 * u][1], b.x, b.y);
      mma(first, values.part[2 * u + 1][0], b.z, b.w);
      mma(second, values.part[2 * u + 1][1], b.z, b.w);
    }
    const Outputs x{
        {first[0], first[2], second[0], second[2], first[1], first[3], second[1], second[3]}};
    if (begins) sums[t] = Outputs{};
    merge(&sums[t], x, factors + t * kColumns);
  }
}

template <int kTiles, typename SharedT>
__device__ __forceinline__ void outputs(uint32_t values_at, int num_tiles, int parity, bool begins,
                                        const SharedT& shared, Outputs (&sums)[kTiles]) {
  Values values;
  values.load(values_at);
  if (kTiles == 1 || num_tiles == 1) {
    outputs_of<1>(values, parity, 0, begins, shared, sums);
    return;
  }
  constexpr int kAtOnce = kTiles < 3 ? kTiles : 3;
#pragma unroll
  for (int t = 0; t < kTiles; t += kAtOnce) {
    if (t < num_tiles) outputs_of<kAtOnce>(values, parity, t, begins, shared, sums + t);
  }
}

__device__ __forceinline__ void store(float* column, const Outputs& x) {
  *reinterpret_cast<float4*>(column) = {x.o[0], x.o[1], x.o[2], x.o[3]};
  *reinterpret_cast<float4*>(column + kHeadDim) = {x.o[4], x.o[5], x.o[6], x.o[7]};
}
__device__ __forceinline__ Outputs fetch(const float* column) {
  const float4 a = *reinterpret_cast<const float4*>(column);
  const float4 b = *reinterpret_cast<const float4*>(column + kHeadDim);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

/// Finished nodes of level 1 go up the tree; open nodes of higher levels wait in the block's scratch, where every thread meets its
/// own values only.
template <int kTiles, typename SharedT>
__device__ __forceinline__ void carry(const Args& args, const Item& it, int leaf, int item_idx,
                                      int num_tiles, int parity, const SharedT& shared,
                                      Outputs (&sums)[kTiles]) {
  constexpr int kSize = kTiles * kColumns * kHeadDim;
  constexpr int kTileSize = kColumns * kHeadDim;
  const int lane = lane_id();
  const int column = lane % 4 * 2;
  const int at = column * kHeadDim + warp_id() * 32 + lane / 4 * 4;
  const int level = shared.plan.level;
  const int up = completed(it, leaf, level);
#pragma unroll 1
  for (int n = 1; n < level && n <= up; ++n) {
    float* node =
        args.open + (static_cast<int64_t>(blockIdx.x) * (kMaxLevel - 1) + n - 1) * kSize + at;
    if (!first_child(it, leaf, n)) {
      constexpr int kAtOnce = kTiles < 3 ? kTiles : 3;  // asked for together
#pragma unroll
      for (int t0 = 0; t0 < kTiles; t0 += kAtOnce) {
        if (t0 >= num_tiles) break;
        Outputs old[kAtOnce];
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t) old[t] = fetch(node + (t0 + t) * kTileSize);
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t) {
          merge(&old[t], sums[t0 + t], shared.factors[parity][n] + (t0 + t) * kColumns + column);
          sums[t0 + t] = old[t];
        }
      }
    }
    if (n < up) continue;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t < num_tiles) store(node + t * kTileSize, sums[t]);
    }
  }
  if (leaf + 1 != it.leaf_end) return;
  float* to = args.partial + static_cast<int64_t>(item_idx) * kSize + at;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (t < num_tiles) store(to + t * kTileSize, sums[t]);
  }
}

}  // namespace sluice::cuda::attn
