#pragma once
// From a warp's sums (layout: wgmma.cuh) to what a projection stores.

#include <cuda_fp16.h>

#include "ops/cuda/gemm_sm90.cuh"
#include "ops/cuda/math.cuh"

namespace sluice::cuda {

__device__ __forceinline__ uint32_t pack(bf16 low, bf16 high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}

/// 8 x 8 values of 16 bits: from lane 4 r + t holding row r, columns 2 t and 2 t + 1, to the same of the transpose.
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

/// First output row of a slot's 8.
template <bool kPair>
__device__ __forceinline__ int slot_row(GemmPlace place, int slot) {
  return (place.tile * (kPair ? kTileGroups / 2 : kTileGroups) + slot) * kRowGroup;
}

/// Position of value k (even, 0 .. 63) of a block in operand order.
__device__ __forceinline__ int operand_position(int k) {
  const int step = k / 32 * 2 + k / 4 % 2;
  return step * 16 + k / 8 % 4 * 2 + k / 2 % 2 * 8 + k % 2;
}

/// A warp's sums of 8 tokens: row r of its low 8 rows at tokens 2 t, 2 t + 1, then the same of its high 8 rows.
struct Quad {
  float low[2], high[2];
};

/// The residual stream under a quad.
struct OldQuad {
  uint32_t low, high;
};

/// Where a warp's quads of a tile go, 8 tokens at a time. bf16 pairs lie along a row of the output, so squares are transposed first: the lane has token lane / 4 and
/// columns 2 (lane % 4) + 0, 1. fp32 goes as it is.
template <bool kPair>
struct QuadOut {
  const GemmParams& params;
  const GemmKernelSegment& segment;
  float low_factor, high_factor;  // of the lane's rows, from packing
  int token;
  int low_n, high_n;
  int64_t at;          // of (token, low_n) in the output
  int64_t operand_at;  // the same in the operand

  __device__ __forceinline__ QuadOut(const GemmParams& params, GemmPlace place, int low, int high,
                                     int token_first)
      : params(params), segment(params.segments[place.segment]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int low_row = slot_row<kPair>(place, low);
    const int high_row = kPair ? low_row : slot_row<kPair>(place, high);
    const bool is_fp32 = params.epilogue == GemmEpilogue::kStoreFp32;
    const int column = is_fp32 ? lane / 4 : lane % 4 * 2;
    token = token_first + (is_fp32 ? lane % 4 * 2 : lane / 4);
    low_n = low_row + column;
    high_n = high_row + column;
    at = token * segment.out_stride + low_n;
    operand_at =
        kPair ? token * params.operand_stride + low_n / 64 * 64 + operand_position(low_n % 64) : 0;
    low_factor = high_factor = 1.0f;
    if (segment.row_factors != nullptr) {
      const float* high_factors = kPair ? params.segments[1].row_factors : segment.row_factors;
      const int last = segment.num_out - 1;
      low_factor = segment.row_factors[min(low_row + lane / 4, last)];
      high_factor = high_factors[min(high_row + lane / 4, last)];
    }
  }

  __device__ __forceinline__ void advance() {
    token += 8;
    at += 8 * segment.out_stride;
    if (kPair) operand_at += 8 * params.operand_stride;
    // Or the compiler works out all places of a tile beforehand, in registers it does not have.
    asm volatile("" : "+r"(token), "+l"(at), "+l"(operand_at)::"memory");
  }

  /// Of the quad `ahead` quads on; for kResidual.
  __device__ __forceinline__ OldQuad load_old(int ahead) const {
    if (kPair || params.epilogue != GemmEpilogue::kResidual) return {0, 0};
    if (token + 8 * ahead >= params.num_rows) return {0, 0};
    const bf16* low = static_cast<const bf16*>(segment.out) + at + 8 * ahead * segment.out_stride;
    return {load_pair(low, low_n), load_pair(low + (high_n - low_n), high_n)};
  }

  __device__ __forceinline__ void store(Quad quad, OldQuad old) {
    const float low[2] = {quad.low[0] * low_factor, quad.low[1] * low_factor};
    const float high[2] = {quad.high[0] * high_factor, quad.high[1] * high_factor};
    if constexpr (kPair) {
      store_gate_up(gate_up(low[0], high[0]), gate_up(low[1], high[1]));
    } else if (params.epilogue == GemmEpilogue::kStoreFp32) {
      store_fp32(low, at, low_n);
      store_fp32(high, at + (high_n - low_n), high_n);
    } else {
      store_square(low, old.low, at, low_n);
      store_square(high, old.high, at + (high_n - low_n), high_n);
    }
  }

 private:
  __device__ __forceinline__ uint32_t load_pair(const bf16* from, int n) const {
    if (n + 1 < segment.num_out) return *reinterpret_cast<const uint32_t*>(from);
    return n < segment.num_out ? from->bits : 0u;
  }

  __device__ __forceinline__ void store_pair(int64_t place, int n, uint32_t pair) const {
    bf16* to = static_cast<bf16*>(segment.out) + place;
    if (n + 1 < segment.num_out) {
      *reinterpret_cast<uint32_t*>(to) = pair;
    } else if (n < segment.num_out) {
      to->bits = static_cast<uint16_t>(pair);
    }
  }

  __device__ __forceinline__ void store_fp32(const float (&sums)[2], int64_t place, int n) const {
    if (n >= segment.num_out) return;
    float* to = static_cast<float*>(segment.out) + place;
    if (token < params.num_rows) to[0] = sums[0];
    if (token + 1 < params.num_rows) to[segment.out_stride] = sums[1];
  }

  __device__ __forceinline__ void store_square(const float (&sums)[2], uint32_t old, int64_t place,
                                               int n) const {
    uint32_t values = transpose(pack(narrow(sums[0]), narrow(sums[1])));
    if (params.epilogue == GemmEpilogue::kResidual) {
      values = pack(narrow(low_bf16(old) + low_bf16(values)),
                    narrow(high_bf16(old) + high_bf16(values)));
    }
    if (token < params.num_rows) store_pair(place, n, values);
  }

  __device__ static __forceinline__ float gate_up(float gate, float up) {
    // silu() of math.cuh: the reciprocal is rounded as its division is.
    const float g = round_bf16(gate);
    const float s = round_bf16(g * __frcp_rn(1.0f + expf(-g)));
    return round_bf16(s * round_bf16(up));
  }

  __device__ __forceinline__ void store_gate_up(float first, float second) const {
    constexpr float kShift = 1.0f / (1 << kActivationShift);
    constexpr float kF16End = 65520.0f;  // rounds to infinity from here on
    const __half2 halves = __floats2half2_rn(first * kShift, second * kShift);
    const uint32_t values = transpose(*reinterpret_cast<const uint32_t*>(&halves));
    const bool in_range = fabsf(first * kShift) < kF16End && fabsf(second * kShift) < kF16End;
    if (!in_range) *params.range_flag = 1;
    const bool mine = token < params.num_rows && low_n < segment.num_out;
    if (mine)
      *reinterpret_cast<uint32_t*>(static_cast<__half*>(params.operand) + operand_at) = values;
    if (segment.out == nullptr) return;
    const uint32_t plain = transpose(pack(narrow(first), narrow(second)));
    if (mine) store_pair(at, low_n, plain);
  }
};

/// Of a whole tile, all tokens.
template <bool kPair, int kTokens>
__device__ __forceinline__ void store_tile(QuadOut<kPair> out, const float (&sums)[kTokens / 2]) {
  constexpr int kQuads = kTokens / 8;
  constexpr int kAtOnce = 8;
#pragma unroll
  for (int first = 0; first < kQuads; first += kAtOnce) {
    OldQuad old[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce && first + j < kQuads; ++j) old[j] = out.load_old(j);
#pragma unroll
    for (int j = 0; j < kAtOnce && first + j < kQuads; ++j) {
      const float* v = sums + 4 * (first + j);
      out.store({{v[0], v[1]}, {v[2], v[3]}}, old[j]);
      out.advance();
    }
  }
}

}  // namespace sluice::cuda
