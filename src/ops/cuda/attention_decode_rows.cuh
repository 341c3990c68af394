#pragma once
// A step's own rows on their way into attention: norm, rotation, the KV write; and where keys and values lie.

#include <cstdint>

#include "ops/cuda/attention_decode_common.cuh"
#include "ops/cuda/math.cuh"
#include "ops/step_view.h"

namespace sluice::cuda::attn {

constexpr int kTeam = 256;
constexpr int kThreads = 2 * kTeam;  // the score team, then the value team
constexpr int kWarps = kTeam / kWarp;
constexpr int kRowBytes = kHeadDim * 2;
constexpr int kHalfStage = kLeaf * kRowBytes;  // keys, or values, of a leaf

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
/// Of its team.
__device__ __forceinline__ int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp % kWarps;
}
/// For the score team.
__device__ __forceinline__ void team_barrier() {
  asm volatile("bar.sync 1, %0;" ::"n"(kTeam) : "memory");
}
/// For the value team.
__device__ __forceinline__ void value_barrier() {
  asm volatile("bar.sync 2, %0;" ::"n"(kTeam) : "memory");
}
/// For both teams, from wherever they are.
__device__ __forceinline__ void block_barrier() {
  asm volatile("bar.sync 0, %0;" ::"n"(kThreads) : "memory");
}

/// A head by a warp: lane l has dims l + 32 i. Sums as block_sum of 256 threads would.
__device__ inline void norm_and_rotate(const bf16* head, const float* weight, float eps,
                                       const float* cos, const float* sin, bf16 (&out)[kWarps]) {
  const int lane = lane_id();
  float x[kWarps];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) x[i] = widen(head[kWarp * i + lane]);
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const float part = warp_sum(x[i] * x[i]);
    sum = i == 0 ? part : sum + part;
  }
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(kHeadDim) + eps);
#pragma unroll
  for (int i = 0; i < kWarps; ++i)
    x[i] = round_bf16(x[i] * scale * (1.0f + weight[kWarp * i + lane]));
  static_assert(kRotary == 2 * kWarp);
  const float c = cos[lane];
  const float s = sin[lane];
  const float low = x[0];
  const float high = x[1];
  x[0] = round_bf16(low * c) + round_bf16(-high * s);
  x[1] = round_bf16(high * c) + round_bf16(low * s);
#pragma unroll
  for (int i = 0; i < kWarps; ++i) out[i] = narrow(x[i]);
}

__device__ __forceinline__ bf16* keys_of(const KvLayerView& kv, int page, int kv_head) {
  return kv.data + page * kv.page_stride +
         static_cast<int64_t>(kv_head) * (kKvPageTokens * kHeadDim);
}
__device__ __forceinline__ int64_t to_values(const KvLayerView& kv) {
  return kv.num_kv_heads * (kKvPageTokens * kHeadDim);
}

/// The step's own keys and values of an item's positions go to their pages. Items that share positions (tiles of one run) write
/// the same values.
__device__ inline void write_new_rows(const AttentionDecode& op, const StepView& step,
                                      const Item& it) {
  const int lane = lane_id();
  const DeviceRun& run = it.run;
  const int begin = max(run.position, it.leaf * kLeaf);
  const int end = min(run.position + run.num_rows, it.leaf_end * kLeaf);
#pragma unroll 1
  for (int at = begin + warp_id(); at < end; at += kWarps) {
    const int64_t row = run.first_row + at - run.position;
    bf16 k[kWarps];
    norm_and_rotate(op.k.data + row * op.k.stride + it.kv_head * kHeadDim, op.k_norm, op.eps,
                    op.cos.data + at * op.cos.stride, op.sin.data + at * op.sin.stride, k);
    const int page = step.pages[run.first_page + at / static_cast<int>(kKvPageTokens)];
    bf16* k_row = keys_of(op.kv, page, it.kv_head) + at % kKvPageTokens * kHeadDim;
    for (int i = 0; i < kWarps; ++i) k_row[kWarp * i + lane] = k[i];
    const bf16* v = op.v.data + row * op.v.stride + it.kv_head * kHeadDim;
    reinterpret_cast<uint4*>(k_row + to_values(op.kv))[lane] =
        reinterpret_cast<const uint4*>(v)[lane];
  }
}

/// What the copies of a leaf need.
struct Source {
  const bf16* keys;  // the leaf's first
  int last;  // last position of the leaf that holds a token: the rest counts as zero. -1: no leaf
};

__device__ __forceinline__ Source source(const AttentionDecode& op, const StepView& step,
                                         const Item& it, int leaf) {
  constexpr int kLeaves = kKvPageTokens / kLeaf;
  const int page = step.pages[it.run.first_page + leaf / kLeaves];
  return {keys_of(op.kv, page, it.kv_head) + leaf % kLeaves * kLeaf * kHeadDim,
          min(kLeaf, it.run.position + it.run.num_rows - leaf * kLeaf) - 1};
}

/// 64 rows of 512 bytes; 16-byte chunk c of row r lands at chunk c ^ (r mod 8). By the value team; a warp copies whole rows.
__device__ __forceinline__ void copy_rows(uint32_t to, const bf16* rows, int last) {
  const int warp = warp_id();
  const int lane = lane_id();
  const bf16* from = rows + warp * kHeadDim + lane * 8;
  to += warp * kRowBytes + (lane ^ warp % 8) * 16;
#pragma unroll
  for (int i = 0; i < kLeaf / kWarps; ++i) {
    copy_async(to + i * kWarps * kRowBytes, from + i * kWarps * kHeadDim,
               warp + i * kWarps <= last);
  }
}

}  // namespace sluice::cuda::attn
