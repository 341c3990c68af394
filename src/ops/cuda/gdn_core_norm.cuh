#pragma once
// The gated norm at a run's end. Its mean goes over the whole head, so blocks of a cluster send each other
// the sums of squares of their columns.

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/gdn_core_rule.cuh"

namespace sluice::cuda::gdn {

/// The squares of o of the tile that begins at `row`, a warp 8 rows of 32 columns. The helpers.
template <typename L>
__device__ __forceinline__ void share_sums(const Place<L>& at, int row, int helper) {
  constexpr int kRows = 8;
  const unsigned lane = threadIdx.x % kWarp;
  const int end = min(row + L::kTileRows, at.num_rows());
  const int units = (end - row + kRows - 1) / kRows * L::kGroups;
#pragma unroll 1
  for (int unit = helper; unit < units; unit += L::kHelpers) {
    const int group = unit % L::kGroups;
    const int first = row + unit / L::kGroups * kRows;
    float squares[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const float o = widen(at.row(min(first + i, end - 1)).values[group * kSumChannels + lane]);
      squares[i] = o * o;
    }
    const int mine = first + sum_rows<kRows, kWarp / 2>(squares, lane);
    if (mine < end) {
      share_sum(at, mine, group, lane % 4, squares[0],
                &at.shared.all_sums[at.half][row / L::kTileRows]);
    }
  }
}

/// A pair of the core, from an even `dim` on.
template <typename L>
__device__ __forceinline__ void store_core(const Place<L>& at, int row, unsigned dim,
                                           uint32_t pair) {
  if (at.args.operands == nullptr) {
    *reinterpret_cast<uint32_t*>(at.row_of(at.args.core, row) + dim) = pair;
    return;
  }
  const uint32_t operand = operands_of(pair);
  if (is_out_of_range(operand)) raise_flag(at.args.range_flag);
  uint16_t* to = at.args.operands + (at.run.first_row + row) * at.args.num_v_heads * kHeadDim;
  *reinterpret_cast<uint32_t*>(to + operand_place(static_cast<int>(dim))) = operand;
}

/// A warp's z of up to kRows rows, by pairs of columns: row `first` and every `step` behind it up to `end`.
template <typename L, int kRows>
struct Gate {
  int first, step, end;
  uint32_t z[kRows][L::kPairsOfLane];

  __device__ __forceinline__ void load(const Place<L>& at) {
    const unsigned column = at.value() + 2 * (threadIdx.x % kWarp);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * step;
#pragma unroll
      for (int p = 0; p < L::kPairsOfLane; ++p) {
        z[i][p] = row < end ? load_pair(at.row_of(at.args.z, row) + column + p * 2 * kWarp) : 0u;
      }
    }
  }
};

/// Norm, gate and store of the i-th of the warp's rows.
template <typename L, int kRows>
__device__ __forceinline__ void norm_row(const Place<L>& at, const Gate<L, kRows>& gate, int i) {
  const unsigned lane = threadIdx.x % kWarp;
  const int row = gate.first + i * gate.step;
  const bool exists = row < gate.end;
  const SharedRow<L>& of = at.row(exists ? row : gate.first);
  const float4 sums = *reinterpret_cast<const float4*>(of.sums);
  const float squares = (sums.x + sums.y) + (sums.z + sums.w);
  const float inverse = inverse_root(squares / kHeadDim + at.args.eps);
#pragma unroll
  for (int p = 0; p < L::kPairsOfLane; ++p) {
    const unsigned dim = at.value() + 2 * (p * kWarp + lane);
    const float2 norm = *reinterpret_cast<const float2*>(at.args.norm + dim % kHeadDim);
    const uint32_t o = reinterpret_cast<const uint32_t*>(of.values)[p * kWarp + lane];
    const uint32_t n = narrow_pair(low_bf16(o) * inverse, high_bf16(o) * inverse);
    const uint32_t y = narrow_pair(norm.x * low_bf16(n), norm.y * high_bf16(n));
    const uint32_t z = gate.z[i][p];
    const uint32_t pair = narrow_pair(low_bf16(y) * silu_unbranched(low_bf16(z)),
                                      high_bf16(y) * silu_unbranched(high_bf16(z)));
    if (exists) store_core(at, row, dim, pair);
  }
}

/// All of the warp's rows, when `barrier` says that the sums are there; two side by side.
template <typename L, int kRows>
__device__ __forceinline__ void norm_rows(const Place<L>& at, const Gate<L, kRows>& gate,
                                          uint64_t* barrier) {
  if (gate.first >= gate.end) return;
  if constexpr (L::kSlices > 1) sums_wait(barrier);
#pragma unroll
  for (int i = 0; i < kRows; i += 2) {
    if (gate.first + i * gate.step >= gate.end) return;
    norm_row(at, gate, i);
    if (i + 1 < kRows) norm_row(at, gate, i + 1);
  }
}

/// norm_rows' weights come from far away and are wanted at the very end.
template <typename L>
__device__ __forceinline__ void prefetch_norm(const Place<L>& at) {
  const float* from = at.args.norm + at.slice() * L::kColumns + threadIdx.x % L::kColumns;
  prefetch_l1(from);
}

}  // namespace sluice::cuda::gdn
