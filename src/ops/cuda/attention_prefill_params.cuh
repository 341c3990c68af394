#pragma once
// What the kernels of prefill attention share.

#include "ops/cuda/attention_prefill.h"
#include "ops/cuda/attention_prefill_instr.cuh"
#include "ops/cuda/attention_prefill_plan.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::prefill {

/// Maximum and sum of a row: m in units of q . k, before the scale; l adds the rounded weights.
struct State {
  float m, l;
};

struct Params {
  CUtensorMap keys;  // the pages as rows of 256: keys and values alike
  AttentionPrefill op;
  Plan plan;
  uint8_t* queries;  // images of tiles
  float* parked;     // [block] sums of earlier spans; as parts
  float* parts;      // [tile of queries][span] when contexts are split
  State* states;     // [tile of queries][span][128]
  uint32_t zero;     // 0: see attend()
};

/// e^(s - max) of rounded scores is 2^((d - m) * kScale): 1/16 is the contract's scale, a power of two, so its second rounding changes nothing.
constexpr float kScale = 1.44269504f / 16.0f;

/// What the sum so far and the next child are multiplied by.
struct Factors {
  float old, add;
};
__device__ __forceinline__ float weight(float m, float max) {
  return m == -INFINITY ? 0.0f : quick_exp2((m - max) * kScale);
}
/// Joins a span's state to that of the spans before it, which is never empty.
__device__ __forceinline__ Factors join(State* into, const State& child) {
  const float max = fmaxf(into->m, child.m);
  const Factors f{weight(into->m, max), weight(child.m, max)};
  if (child.m != -INFINITY) {
    into->l = fmaf(child.l, f.add, into->l * f.old);
    into->m = max;
  }
  return f;
}
/// A row that sees nothing of the span keeps its bits.
__device__ __forceinline__ float join(float into, float child, const Factors& f) {
  return f.add == 0.0f && f.old == 1.0f ? into : fmaf(child, f.add, into * f.old);
}

}  // namespace sluice::cuda::prefill
