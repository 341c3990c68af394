#pragma once
// The first kernel: norm and rotation, keys and values to their pages, queries to images of shared memory, gates to where the outputs will lie.
//
// Bound by memory: reads qg, k, v once, writes queries, gates, keys and values once. A warp has four heads, so that what rotates is the first of every lane's four shares of
// a head, and sums over a head need a third of the exchanges that a head a warp would.

#include "ops/cuda/attention_prefill_params.cuh"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::prefill {

constexpr int kPrepareWarps = 8;
constexpr int kHeadLanes = 8;  // of a head
constexpr int kWarpHeads = kWarp / kHeadLanes;
constexpr int kShareDims = 8;  // 16 bytes
constexpr int kShares = kHeadDim / kShareDims / kHeadLanes;
constexpr uint32_t kAllLanes = 0xffffffffu;

__device__ __forceinline__ int head_lane() {
  return static_cast<int>(threadIdx.x) % kHeadLanes;
}

/// What a lane has of a head: shares head_lane() + 8 i, of 8 dims each.
struct Head {
  uint4 shares[kShares];

  __device__ __forceinline__ void load(const bf16* from) {
#pragma unroll
    for (int i = 0; i < kShares; ++i) {
      shares[i] = __ldcs(reinterpret_cast<const uint4*>(from) + i * kHeadLanes + head_lane());
    }
  }
  __device__ __forceinline__ void store(bf16* to) const {
#pragma unroll
    for (int i = 0; i < kShares; ++i) {
      reinterpret_cast<uint4*>(to)[i * kHeadLanes + head_lane()] = shares[i];
    }
  }
};

struct Share {
  float x[kShareDims];
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
/// Eight floats that come 16-byte aligned.
__device__ __forceinline__ Share load_floats(const float* from) {
  const float4 low = __ldg(reinterpret_cast<const float4*>(from));
  const float4 high = __ldg(reinterpret_cast<const float4*>(from) + 1);
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

/// Of four lanes' squares y, in each of them ((z0 + z4) + (z2 + z6)) + ((z1 + z5) + (z3 + z7)), where z_e is the sum of their y_e by halves. Lanes split the e among them.
__device__ __forceinline__ float sum_of_quad(const float (&y)[kShareDims]) {
  const bool is_upper = (threadIdx.x & 2) != 0;
  const bool is_odd = (threadIdx.x & 1) != 0;
  float pairs[4];  // e = 2 is_upper + {0, 1, 4, 5}
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int e = i % 2 + i / 2 * 4;
    const float sent = is_upper ? y[e] : y[e + 2];
    pairs[i] = (is_upper ? y[e + 2] : y[e]) + __shfl_xor_sync(kAllLanes, sent, 2);
  }
  float z[2];  // e = 2 is_upper + is_odd + {0, 4}
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sent = is_odd ? pairs[2 * i] : pairs[2 * i + 1];
    z[i] = (is_odd ? pairs[2 * i + 1] : pairs[2 * i]) + __shfl_xor_sync(kAllLanes, sent, 1);
  }
  float sum = z[0] + z[1];
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

/// Over the head, as a block of 256 threads with a dim each sums (block_sum): inside 32 dims by halves, then the eight 32s in order.
__device__ __forceinline__ float sum_of_squares(const Share (&head)[kShares]) {
  const bool has_second = head_lane() >= kHeadLanes / 2;  // of every 64 dims
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kShares; ++i) {
    float y[kShareDims];
#pragma unroll
    for (int e = 0; e < kShareDims; ++e) y[e] = head[i].x[e] * head[i].x[e];
    const float own = sum_of_quad(y);
    const float other = __shfl_xor_sync(kAllLanes, own, kHeadLanes / 2);
    const float first = has_second ? other : own;
    const float second = has_second ? own : other;
    sum = i == 0 ? first + second : sum + first + second;
  }
  return sum;
}

/// Bit for bit what prepare_kernel of attention.cu makes of a head. cos and sin: of the row's position.
__device__ __forceinline__ void norm_and_rotate(Head& head, const float* weight, float eps,
                                                const float* cos, const float* sin) {
  Share x[kShares];
#pragma unroll
  for (int i = 0; i < kShares; ++i) x[i] = widen_share(head.shares[i]);
  const float scale = 1.0f / sqrtf(sum_of_squares(x) / static_cast<float>(kHeadDim) + eps);
#pragma unroll
  for (int i = 0; i < kShares; ++i) {
    const Share w = load_floats(weight + (i * kHeadLanes + head_lane()) * kShareDims);
#pragma unroll
    for (int e = 0; e < kShareDims; ++e) x[i].x[e] = x[i].x[e] * scale * (1.0f + w.x[e]);
    head.shares[i] = narrow_share(x[i]);
  }
  // The first shares are what rotates: those of lanes 0 .. 3 are the lower half, of lanes 4 .. 7 the upper.
  const uint4 mine = head.shares[0];
  const uint4 others = {
      __shfl_xor_sync(kAllLanes, mine.x, 4), __shfl_xor_sync(kAllLanes, mine.y, 4),
      __shfl_xor_sync(kAllLanes, mine.z, 4), __shfl_xor_sync(kAllLanes, mine.w, 4)};
  const int freq = head_lane() % 4 * kShareDims;
  const float sign = head_lane() < 4 ? -1.0f : 1.0f;
  const Share own = widen_share(mine);
  const Share other = widen_share(others);
  const Share c = load_floats(cos + freq);
  const Share s = load_floats(sin + freq);
  Share turned;
#pragma unroll
  for (int e = 0; e < kShareDims; ++e) {
    turned.x[e] = rounded(own.x[e] * c.x[e]) + rounded(sign * other.x[e] * s.x[e]);
  }
  head.shares[0] = narrow_share(turned);
}

/// Words of lanes 4 i + a change places: word b of lane a comes to word a of lane b.
__device__ __forceinline__ uint4 transpose_words(uint4 w) {
  const bool odd = (threadIdx.x & 1) != 0;
  const uint32_t x = __shfl_xor_sync(kAllLanes, odd ? w.x : w.y, 1);
  const uint32_t y = __shfl_xor_sync(kAllLanes, odd ? w.z : w.w, 1);
  const uint4 v = odd ? make_uint4(x, w.y, y, w.w) : make_uint4(w.x, x, w.z, y);
  const bool upper = (threadIdx.x & 2) != 0;
  const uint32_t z = __shfl_xor_sync(kAllLanes, upper ? v.x : v.z, 2);
  const uint32_t u = __shfl_xor_sync(kAllLanes, upper ? v.y : v.w, 2);
  return upper ? make_uint4(z, u, v.z, v.w) : make_uint4(v.x, v.y, z, u);
}

/// 1 / (1 + e^-x) to 2^-22 max(1, |x|) of it.
__device__ __forceinline__ float quick_sigmoid(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + quick_exp2(x * -1.4426950408889634f)));
  return y;
}

/// rb(sigmoid(gate)), in operand order: 8 dims are word 2 (d % 8) / 2 .. of four chunks, which four lanes fill together.
__device__ __forceinline__ void make_gates(Head& gates) {
#pragma unroll
  for (int i = 0; i < kShares; ++i) {
    Share gate = widen_share(gates.shares[i]);
#pragma unroll
    for (float& x : gate.x) x = quick_sigmoid(x);
    gates.shares[i] = transpose_words(narrow_share(gate));
  }
}

/// A row of the step, if it is of a run.
struct Place {
  DeviceRow at;
  DeviceRun run;
  bool exists;

  __device__ __forceinline__ Place(const StepView& step, int row, bool is_row) {
    at = step.rows[row];
    exists = is_row && at.run >= 0;
    if (!exists) at.run = 0, at.position = 0;
    run = step.runs[at.run];
  }
};

/// A (row, head) of queries, rows after one another; eight lanes.
__device__ __forceinline__ void prepare_query(const Params& params, const StepView& step,
                                              int task) {
  const AttentionPrefill& op = params.op;
  const Plan& plan = params.plan;
  const bool is_task = task < step.num_rows * op.num_heads;
  const int row = is_task ? task / op.num_heads : 0;
  const int head = is_task ? task % op.num_heads : 0;
  const bf16* from = op.qg.data + row * op.qg.stride + head * 2 * kHeadDim;
  Head query, gates;
  query.load(from);
  gates.load(from + kHeadDim);
  const Place place(step, row, is_task);
  const int position = place.at.position;
  norm_and_rotate(query, op.q_norm, op.eps, op.cos.data + position * op.cos.stride,
                  op.sin.data + position * op.sin.stride);
  make_gates(gates);
  if (!place.exists) return;
  const Tiles tiles = tiles_of(plan, place.run, place.at.run);
  const int flat = position * plan.group + head % plan.group - tiles.first_flat;
  uint8_t* image =
      params.queries + (static_cast<int64_t>(head / plan.group) * plan.images_per_head +
                        tiles.image + flat / kTileRows) *
                           kTileImage;
  uint16_t* to = op.operands + (static_cast<int64_t>(row) * op.num_heads + head) * kHeadDim;
#pragma unroll
  for (int i = 0; i < kShares; ++i) {
    const int share = i * kHeadLanes + head_lane();
    *reinterpret_cast<uint4*>(image + image_place(flat % kTileRows, share)) = query.shares[i];
    *reinterpret_cast<uint4*>(to + gate_place(share)) = gates.shares[i];
  }
}

/// A (row, KV head) of keys and values.
__device__ __forceinline__ void prepare_key(const Params& params, const StepView& step, int task) {
  const AttentionPrefill& op = params.op;
  const bool is_task = task < step.num_rows * op.num_kv_heads;
  const int row = is_task ? task / op.num_kv_heads : 0;
  const int head = is_task ? task % op.num_kv_heads : 0;
  Head key, value;
  key.load(op.k.data + row * op.k.stride + head * kHeadDim);
  value.load(op.v.data + row * op.v.stride + head * kHeadDim);
  const Place place(step, row, is_task);
  const int position = place.at.position;
  norm_and_rotate(key, op.k_norm, op.eps, op.cos.data + position * op.cos.stride,
                  op.sin.data + position * op.sin.stride);
  if (!place.exists) return;
  constexpr int kPage = static_cast<int>(kKvPageTokens);
  const int page = step.pages[place.run.first_page + position / kPage];
  bf16* key_row = op.kv.data + page * op.kv.page_stride +
                  (static_cast<int64_t>(head) * kPage + position % kPage) * kHeadDim;
  bf16* value_row = key_row + static_cast<int64_t>(op.num_kv_heads) * kPage * kHeadDim;
  key.store(key_row);
  value.store(value_row);
  if (position + 1 != place.run.position + place.run.num_rows) return;
  for (int rest = position + 1; rest % kKeys != 0; ++rest) {
    value_row += kHeadDim;
    Head{}.store(value_row);
  }
}

/// Warps of `heads` heads of all rows.
inline __host__ __device__ int prepare_warps(int num_rows, int heads) {
  return ceil_div(num_rows * heads, kWarpHeads);
}

/// A warp four (row, head): query heads, then KV heads, rows after one another.
__global__ void __launch_bounds__(kPrepareWarps* kWarp)
    prepare_kernel(const __grid_constant__ Params params, const StepView step) {
  pdl_launch();
  pdl_wait();
  const int warp = static_cast<int>(blockIdx.x) * kPrepareWarps + threadIdx.x / kWarp;
  const int of_warp = static_cast<int>(threadIdx.x) % kWarp / kHeadLanes;
  const int of_queries = prepare_warps(step.num_rows, params.op.num_heads);
  if (warp < of_queries) {
    prepare_query(params, step, warp * kWarpHeads + of_warp);
  } else {
    prepare_key(params, step, (warp - of_queries) * kWarpHeads + of_warp);
  }
}

}  // namespace sluice::cuda::prefill
