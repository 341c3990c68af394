#pragma once
// The gated norm at a run's end. Its mean goes over the whole head, so blocks of a cluster send each other
// the sums of squares of their columns.

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/gdn_core_rule.cuh"

namespace sluice::cuda::gdn {

/// The squares of o of all rows, a warp 8 rows of 32 columns.
template <typename L>
__device__ __forceinline__ void share_sums(const Place<L>& at, Shared<L>& shared) {
  constexpr int kRows = 8;
  const unsigned lane = threadIdx.x % kWarp;
  const int units = (at.num_rows() + kRows - 1) / kRows * L::kGroups;
#pragma unroll 1
  for (int unit = static_cast<int>(threadIdx.x / kWarp); unit < units; unit += L::kWarps) {
    const int group = unit % L::kGroups;
    const int first = unit / L::kGroups * kRows;
    float squares[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = min(first + i, at.num_rows() - 1);
      const float o = widen(shared.rows[row].values[group * kSumChannels + lane]);
      squares[i] = o * o;
    }
    const int row = first + sum_rows<kRows, kWarp / 2>(squares, lane);
    if (row < at.num_rows()) share_sum(shared, row, group, at.slice(), lane % 4, squares[0]);
  }
}

/// The norm's rows go round the warps, beginning with the last: row `first`, and every kWarps behind it.
template <typename L>
__device__ __forceinline__ int first_row_of_warp() {
  return L::kWarps - 1 - static_cast<int>(threadIdx.x / kWarp);
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

/// A warp's z of up to kRows rows, by pairs of columns.
template <typename L, int kRows>
struct Gate {
  uint32_t z[kRows][L::kPairsOfLane];

  __device__ __forceinline__ void load(const Place<L>& at) {
    const unsigned first = at.value() + 2 * (threadIdx.x % kWarp);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first_row_of_warp<L>() + i * L::kWarps;
#pragma unroll
      for (int p = 0; p < L::kPairsOfLane; ++p) {
        z[i][p] =
            row < at.num_rows() ? load_pair(at.row_of(at.args.z, row) + first + p * 2 * kWarp) : 0u;
      }
    }
  }
};

/// Norm, gate and store: the warp's rows from `first` on, kAtOnce of them side by side.
template <int kAtOnce, typename L, int kRows>
__device__ __forceinline__ void norm_some(const Place<L>& at, const Shared<L>& shared,
                                          const Gate<L, kRows>& gate, int first) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int i = first; i < first + kAtOnce && i < kRows; ++i) {
    const int row = first_row_of_warp<L>() + i * L::kWarps;
    const bool exists = row < at.num_rows();
    const SharedRow<L>& of = shared.rows[exists ? row : 0];
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
}

/// All of the warp's rows, when the sums are there.
template <typename L, int kRows>
__device__ __forceinline__ void norm_rows(const Place<L>& at, Shared<L>& shared,
                                          const Gate<L, kRows>& gate) {
  constexpr int kAtOnce = 2;
  if (first_row_of_warp<L>() < at.num_rows()) {
    if constexpr (L::kSlices > 1) sums_wait(&shared.all_sums);
  }
#pragma unroll
  for (int i = 0; i < kRows; i += kAtOnce) {
    if (first_row_of_warp<L>() + i * L::kWarps < at.num_rows()) {
      norm_some<kAtOnce>(at, shared, gate, i);
    }
  }
}

/// norm_rows' weights come from far away and are wanted at the very end.
template <typename L>
__device__ __forceinline__ void prefetch_norm(const Place<L>& at) {
  const float* from = at.args.norm + at.slice() * L::kColumns + threadIdx.x % L::kColumns;
  prefetch_l1(from);
}

}  // namespace sluice::cuda::gdn
