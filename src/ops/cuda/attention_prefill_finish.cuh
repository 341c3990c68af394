#pragma once
// From sums to outputs: o / l, the gate, f16 operands; and how sums wait for the spans to come.

#include "ops/cuda/attention_prefill_params.cuh"
#include "ops/cuda/fragments.cuh"

namespace sluice::cuda::prefill {

/// Where outputs of one flat row go: its head's operands, or null for a row that is not of the run.
__device__ __forceinline__ uint16_t* head_operands(const AttentionPrefill& op, const Plan& plan,
                                                   const Unit& unit, int flat) {
  const int at = flat / plan.group - unit.run.position;
  if (at < 0 || at >= unit.run.num_rows) return nullptr;
  const int head = unit.kv_head * plan.group + flat % plan.group;
  return op.operands +
         (static_cast<int64_t>(unit.run.first_row + at) * op.num_heads + head) * kHeadDim;
}

/// out = rb( rb(o / l) * gate ), two dims.
__device__ __forceinline__ uint32_t gated(float low, float high, float inverse, uint32_t gate) {
  const uint32_t o = pack_bf16(low * inverse, high * inverse);
  return operands_of(pack_bf16(low_bf16(o) * low_bf16(gate), high_bf16(o) * high_bf16(gate)));
}

/// Replaces the gates of a chunk (chunk_place) by outputs; o: of its four n8 blocks, the row's two values each.
__device__ __forceinline__ void finish_chunk(uint16_t* chunk, const float2 (&o)[4], float inverse,
                                             int* range_flag) {
  auto* place = reinterpret_cast<uint4*>(chunk);
  const uint4 gate = *place;
  const uint4 out = {gated(o[0].x, o[0].y, inverse, gate.x), gated(o[1].x, o[1].y, inverse, gate.y),
                     gated(o[2].x, o[2].y, inverse, gate.z),
                     gated(o[3].x, o[3].y, inverse, gate.w)};
  *place = out;
  if (is_out_of_range(out.x) || is_out_of_range(out.y) || is_out_of_range(out.z) ||
      is_out_of_range(out.w)) {
    raise_flag(range_flag);
  }
}

/// Sums of a tile: [n8 block][thread of the two consumer warpgroups] float4.
constexpr int kConsumers = 256;
static_assert(kPartFloats == 32 * kConsumers * 4);

__device__ __forceinline__ float4 join(const float4& into, const float4& child,
                                       const Factors (&f)[2]) {
  return {join(into.x, child.x, f[0]), join(into.y, child.y, f[0]), join(into.z, child.z, f[1]),
          join(into.w, child.w, f[1])};
}

/// What follows a span.
struct Leave {
  float4*
      part;  // of this thread: sums of the spans before, and where sums go that are not the last
  bool joins, finishes;  // there are spans before; none behind
  Factors factors[2];
  float inverse[2];    // 1 / l
  uint16_t* heads[2];  // of rows r and r + 8, or null
  int* range_flag;
};

/// Outputs of a chunk's four n8 blocks.
__device__ __forceinline__ void finish(const float4 (&sum)[4], int quarter,
                                       const float (&inverse)[2], uint16_t* const (&heads)[2],
                                       int* range_flag) {
  const int place = chunk_place(quarter, static_cast<int>(threadIdx.x % 4));
  if (heads[0] != nullptr) {
    const float2 o[4] = {
        {sum[0].x, sum[0].y}, {sum[1].x, sum[1].y}, {sum[2].x, sum[2].y}, {sum[3].x, sum[3].y}};
    finish_chunk(heads[0] + place, o, inverse[0], range_flag);
  }
  if (heads[1] != nullptr) {
    const float2 o[4] = {
        {sum[0].z, sum[0].w}, {sum[1].z, sum[1].w}, {sum[2].z, sum[2].w}, {sum[3].z, sum[3].w}};
    finish_chunk(heads[1] + place, o, inverse[1], range_flag);
  }
}

/// Sums of a span leave the registers: joined by those before it, to be parked or finished.
__device__ __forceinline__ void leave(const float (&o)[128], const Leave& to) {
#pragma unroll
  for (int quarter = 0; quarter < 8; ++quarter) {
    float4* part = to.part + 4 * quarter * kConsumers;
    float4 sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 16 * quarter + 4 * i;
      sum[i] = make_float4(o[at], o[at + 1], o[at + 2], o[at + 3]);
    }
    if (to.joins) {
      float4 before[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) before[i] = part[i * kConsumers];
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = join(before[i], sum[i], to.factors);
    }
    if (to.finishes) {
      finish(sum, quarter, to.inverse, to.heads, to.range_flag);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) part[i * kConsumers] = sum[i];
    }
  }
}

/// The third kernel, when contexts are split. A block a (tile, 32 dims), in turns: thread for thread as the second kernel's consumers.
__global__ void __launch_bounds__(kConsumers)
    merge_kernel(const __grid_constant__ Params params, const StepView step) {
  pdl_launch();
  pdl_wait();
  const AttentionPrefill& op = params.op;
  Plan tiles = params.plan;
  tiles.split_spans = 0;  // units are whole tiles here
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll 1
  for (int idx = static_cast<int>(blockIdx.x);; idx += static_cast<int>(gridDim.x)) {
    const int quarter = idx % 8;
    const int tile = idx / 8 % kClusterTiles;
    Unit unit;
    if (!unit_at(tiles, step, idx / (8 * kClusterTiles), &unit)) return;
    const int flat = unit.first_flat + tile * kTileRows + row;
    float4 sum[4] = {};
    State state[2] = {{-INFINITY, 0.0f}, {-INFINITY, 0.0f}};
#pragma unroll 1
    for (int span = 0; span < unit.end_span; ++span) {
      const int64_t part = part_of(params.plan, unit.image + tile, span);
      const auto* from = reinterpret_cast<const float4*>(params.parts + part * kPartFloats) +
                         4 * quarter * kConsumers + thread;
      float4 child[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) child[i] = from[i * kConsumers];
      const State* states = params.states + part * kTileRows + row;
      const State own[2] = {states[0], states[8]};
      if (span == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = child[i];
        state[0] = own[0];
        state[1] = own[1];
        continue;
      }
      const Factors f[2] = {join(&state[0], own[0]), join(&state[1], own[1])};
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] = join(sum[i], child[i], f);
    }
    uint16_t* const heads[2] = {head_operands(op, params.plan, unit, flat),
                                head_operands(op, params.plan, unit, flat + 8)};
    const float inverse[2] = {1.0f / state[0].l, 1.0f / state[1].l};
    finish(sum, quarter, inverse, heads, op.range_flag);
  }
}

}  // namespace sluice::cuda::prefill
