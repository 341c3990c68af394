#pragma once
// What both kernels of decode attention share: launch arguments, states of tree nodes and their merge, norm and rotation.

#include <cstdint>

#include "ops/cuda/attention_decode.h"
#include "ops/cuda/attention_decode_instr.cuh"
#include "ops/cuda/attention_decode_plan.cuh"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::attn {

constexpr int kHeadDim = 256;
constexpr int kRotary = 64;
constexpr int kColumns = kQueriesTogether;  // of a tile

/// Maximum and sum of a node; the empty node is (-inf, 0).
struct State {
  float m, l;
};

/// What the sum so far and the next child are multiplied by.
struct Factors {
  float old, add;
};

__device__ __forceinline__ float weight(float m, float max) {
  return m == -INFINITY ? 0.0f : fast_exp(m - max);
}
__device__ __forceinline__ Factors merge(State* into, State child) {
  const float max = fmaxf(into->m, child.m);
  const Factors f{weight(into->m, max), weight(child.m, max)};
  into->l = fmaf(child.l, f.add, into->l * f.old);
  into->m = max;
  return f;
}
__device__ __forceinline__ float merge(float into, float child, float old, float add) {
  return fmaf(child, add, into * old);
}

/// o / l and its gate, as the contract rounds.
__device__ __forceinline__ bf16 gated(float o, float l, bf16 gate) {
  return narrow(round_bf16(o / l) * round_bf16(sigmoid(widen(gate))));
}

struct Args {
  AttentionDecode op;
  PlanLimits plan;
  float* partial;  // [item][tile][256] o
  State* states;   // [item][tile]
  float* open;     // [block][level 2..][tile][256] o of nodes not yet complete
};

}  // namespace sluice::cuda::attn
