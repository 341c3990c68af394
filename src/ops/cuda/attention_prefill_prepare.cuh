#pragma once
// The first kernel: norm and rotation, keys and values to their pages, queries to images of shared memory, gates to where the outputs will lie.
//
// Bound by memory: reads qg, k, v once, writes queries, gates, keys and values once.

#include "ops/cuda/attention_prefill_params.cuh"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::prefill {

constexpr int kPrepareWarps = 8;

/// What of this lane a head is made of: dims 8 lane .. 8 lane + 7.
struct Share {
  float x[8];
};

__device__ __forceinline__ Share widen_share(const uint4& raw) {
  return {{low_bf16(raw.x), high_bf16(raw.x), low_bf16(raw.y), high_bf16(raw.y), low_bf16(raw.z),
           high_bf16(raw.z), low_bf16(raw.w), high_bf16(raw.w)}};
}
__device__ __forceinline__ uint4 narrow_share(const Share& s) {
  return {pack_bf16(s.x[0], s.x[1]), pack_bf16(s.x[2], s.x[3]), pack_bf16(s.x[4], s.x[5]),
          pack_bf16(s.x[6], s.x[7])};
}
__device__ __forceinline__ float rounded(float x) {
  return low_bf16(pack_bf16(x, 0.0f));
}

/// Over the head, as a block of 256 threads with a dim each sums (block_sum): inside 32 dims by halves, then the eight 32s in order.
__device__ __forceinline__ float sum_of_squares(const Share& s) {
  float y[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) y[e] = s.x[e] * s.x[e];
#pragma unroll
  for (int step = 2; step > 0; step /= 2) {
#pragma unroll
    for (int e = 0; e < 8; ++e) y[e] += __shfl_xor_sync(0xffffffffu, y[e], step);
  }
  const float part = ((y[0] + y[4]) + (y[2] + y[6])) + ((y[1] + y[5]) + (y[3] + y[7]));
  float sum = __shfl_sync(0xffffffffu, part, 0);
#pragma unroll
  for (int i = 1; i < 8; ++i) sum += __shfl_sync(0xffffffffu, part, 4 * i);
  return sum;
}

/// Bit for bit what prepare_kernel of attention.cu makes of a head. cos and sin: of the row's position.
__device__ __forceinline__ Share norm_and_rotate(const Share& raw, const float* weight, float eps,
                                                 const float* cos, const float* sin) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float scale = 1.0f / sqrtf(sum_of_squares(raw) / static_cast<float>(kHeadDim) + eps);
  const float4 w0 = __ldg(reinterpret_cast<const float4*>(weight) + 2 * lane);
  const float4 w1 = __ldg(reinterpret_cast<const float4*>(weight) + 2 * lane + 1);
  const float w[8] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w};
  Share out;
#pragma unroll
  for (int e = 0; e < 8; ++e) out.x[e] = rounded(raw.x[e] * scale * (1.0f + w[e]));
  // Lanes 0 .. 3 have the lower half of the rotated dims, lanes 4 .. 7 the upper.
  const int freq = 8 * (lane % 4);
  const bool rotates = lane < 8;
  const float sign = lane < 4 ? -1.0f : 1.0f;
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const float other = __shfl_xor_sync(0xffffffffu, out.x[e], 4);
    const float c = rotates ? __ldg(cos + freq + e) : 1.0f;
    const float s = rotates ? __ldg(sin + freq + e) : 0.0f;
    if (rotates) out.x[e] = rounded(rounded(out.x[e] * c) + rounded(sign * other * s));
  }
  return out;
}

/// Words of lanes 4 i + a change places: word b of lane a comes to word a of lane b.
__device__ __forceinline__ uint4 transpose_words(uint4 w) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool odd = lane % 2 != 0;
  const uint32_t x = __shfl_xor_sync(0xffffffffu, odd ? w.x : w.y, 1);
  const uint32_t y = __shfl_xor_sync(0xffffffffu, odd ? w.z : w.w, 1);
  const uint4 v = odd ? make_uint4(x, w.y, y, w.w) : make_uint4(w.x, x, w.z, y);
  const bool upper = lane % 4 >= 2;
  const uint32_t z = __shfl_xor_sync(0xffffffffu, upper ? v.x : v.z, 2);
  const uint32_t u = __shfl_xor_sync(0xffffffffu, upper ? v.y : v.w, 2);
  return upper ? make_uint4(z, u, v.z, v.w) : make_uint4(v.x, v.y, z, u);
}

/// A head's rb(sigmoid(gate)) in operand order: 8 dims are word 2 (d % 8) / 2 .. of four chunks, which four lanes fill together.
__device__ __forceinline__ void store_gates(const uint4& raw, uint16_t* head) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Share gate = widen_share(raw);
#pragma unroll
  for (int e = 0; e < 8; ++e) gate.x[e] = sigmoid(gate.x[e]);
  const uint4 chunk = transpose_words(narrow_share(gate));
  *reinterpret_cast<uint4*>(head + gate_place(lane)) = chunk;
}

/// A warp a (row, head), in turns: query heads, then key heads, rows after one another.
__global__ void __launch_bounds__(kPrepareWarps* kWarp)
    prepare_kernel(const __grid_constant__ Params params, const StepView step) {
  pdl_launch();
  pdl_wait();
  const AttentionPrefill& op = params.op;
  const Plan& plan = params.plan;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int heads = op.num_heads + op.num_kv_heads;
  const int64_t num_tasks = static_cast<int64_t>(step.num_rows) * heads;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kPrepareWarps;
#pragma unroll 1
  for (int64_t task = static_cast<int64_t>(blockIdx.x) * kPrepareWarps + threadIdx.x / kWarp;
       task < num_tasks; task += stride) {
    const int row = static_cast<int>(task / heads);
    const int head = static_cast<int>(task % heads);
    const DeviceRow at = step.rows[row];
    if (at.run < 0) continue;
    const DeviceRun run = step.runs[at.run];
    const float* cos = op.cos.data + at.position * op.cos.stride;
    const float* sin = op.sin.data + at.position * op.sin.stride;
    if (head < op.num_heads) {
      const auto* from =
          reinterpret_cast<const uint4*>(op.qg.data + row * op.qg.stride + head * 2 * kHeadDim);
      const uint4 raw = __ldcs(from + lane);
      const uint4 gate = __ldcs(from + kHeadDim / 8 + lane);
      const uint4 q = narrow_share(norm_and_rotate(widen_share(raw), op.q_norm, op.eps, cos, sin));
      const Tiles tiles = tiles_of(plan, run, at.run);
      const int flat = at.position * plan.group + head % plan.group - tiles.first_flat;
      const int64_t image = static_cast<int64_t>(head / plan.group) * plan.images_per_head +
                            tiles.image + flat / kTileRows;
      *reinterpret_cast<uint4*>(params.queries + image * kTileImage +
                                image_place(flat % kTileRows, lane)) = q;
      store_gates(gate, op.operands + (static_cast<int64_t>(row) * op.num_heads + head) * kHeadDim);
      continue;
    }
    const int kv_head = head - op.num_heads;
    const auto* from_k =
        reinterpret_cast<const uint4*>(op.k.data + row * op.k.stride + kv_head * kHeadDim);
    const auto* from_v =
        reinterpret_cast<const uint4*>(op.v.data + row * op.v.stride + kv_head * kHeadDim);
    const uint4 raw = __ldcs(from_k + lane);
    const uint4 v = __ldcs(from_v + lane);
    constexpr int kPage = static_cast<int>(kKvPageTokens);
    const int page = step.pages[run.first_page + at.position / kPage];
    bf16* k_row = op.kv.data + page * op.kv.page_stride +
                  (static_cast<int64_t>(kv_head) * kPage + at.position % kPage) * kHeadDim;
    bf16* v_row = k_row + static_cast<int64_t>(op.num_kv_heads) * kPage * kHeadDim;
    reinterpret_cast<uint4*>(k_row)[lane] =
        narrow_share(norm_and_rotate(widen_share(raw), op.k_norm, op.eps, cos, sin));
    reinterpret_cast<uint4*>(v_row)[lane] = v;
    if (at.position + 1 != run.position + run.num_rows) continue;
    for (int rest = at.position + 1; rest % kKeys != 0; ++rest) {
      v_row += kHeadDim;
      reinterpret_cast<uint4*>(v_row)[lane] = make_uint4(0, 0, 0, 0);
    }
  }
}

}  // namespace sluice::cuda::prefill
