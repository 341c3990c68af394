#pragma once
// From a consumer warp's totals (layout: wgmma_fp8.cuh) to what a projection stores. A warp has 16 tokens; rows of 128 bytes go through its own shared memory, 16-byte chunks
// turned by the row, so that device memory sees whole lines.

#include "ops/cuda/fp8_quantise.cuh"
#include "ops/cuda/gemm_fp8_sum.cuh"

namespace sluice::cuda {

/// The lane, read where it is asked for: or the compiler works out beforehand what a tile's end needs of it, in registers that the sums need.
__device__ __forceinline__ int lane_read_here() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

__device__ __forceinline__ int thread_read_here() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// Where byte `column` of row `row` of a warp's 16 x 128 bytes lies. Bits of `column` that are 0 may be flipped in afterwards.
__device__ __forceinline__ uint32_t aside_place(int row, int column) {
  return static_cast<uint32_t>((row * 128 + column) ^ row % 8 * 16);
}

__device__ __forceinline__ uint4 load_aside(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

/// Four 8 x 8 squares of 16 bits; lane 8 m + i gives the address of row i of square m.
__device__ __forceinline__ void store_squares(uint32_t address, uint32_t a, uint32_t b, uint32_t c,
                                              uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// A lane's share of the 16 rows of 128 bytes: rows lane / 8 + 4 q, chunk lane % 8.
inline constexpr int kAsideShares = 4;

/// A warp's tile where it is stored as bf16, 64 columns at a time.
struct Fp8Bf16Out {
  uint32_t aside;
  int rows_left;     // of the output, from the lane's first row
  int columns_left;  // from the lane's first column
  int64_t stride;
  bf16* at;  // the lane's first row and column

  __device__ __forceinline__ Fp8Bf16Out(const Fp8Params& params, const Fp8Segment& segment,
                                        uint32_t aside, int token, int row_end, int n_first)
      : aside(aside), stride(segment.out_stride) {
    const int lane = lane_read_here();
    const int row = token + lane / 8;
    const int n = n_first + lane % 8 * 8;
    rows_left = row_end - row;
    columns_left = segment.num_out - n;
    at = static_cast<bf16*>(segment.out) + row * stride + n;
  }

  __device__ __forceinline__ bool has(int part, int q) const {
    return 4 * q < rows_left && 64 * part < columns_left;
  }
  __device__ __forceinline__ uint4* place(int part, int q) const {
    return reinterpret_cast<uint4*>(at + 4 * q * stride + 64 * part);
  }

  __device__ __forceinline__ void load_old(int part, uint4 (&old)[kAsideShares]) const {
#pragma unroll
    for (int q = 0; q < kAsideShares; ++q) {
      old[q] = has(part, q) ? *place(part, q) : make_uint4(0, 0, 0, 0);
    }
  }

  __device__ __forceinline__ static uint32_t add(uint32_t old, uint32_t y) {
    return narrow_pair(low_bf16(old) + low_bf16(y), high_bf16(old) + high_bf16(y));
  }

  /// totals: 32 of the lane, 64 columns.
  template <bool kAdds>
  __device__ __forceinline__ void store(int part, const float* totals,
                                        const uint4 (&old)[kAsideShares]) const {
    const int lane = lane_read_here();
    const int square_row = lane / 8 % 2 * 8 + lane % 8;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const float* v = totals + 4 * j;
      store_squares(aside + aside_place(square_row, (j + lane / 16) * 16), narrow_pair(v[0], v[1]),
                    narrow_pair(v[2], v[3]), narrow_pair(v[4], v[5]), narrow_pair(v[6], v[7]));
    }
    __syncwarp();
#pragma unroll
    for (int q = 0; q < kAsideShares; ++q) {
      uint4 y = load_aside(aside + aside_place(lane / 8 + 4 * q, lane % 8 * 16));
      if (kAdds) {
        y = make_uint4(add(old[q].x, y.x), add(old[q].y, y.y), add(old[q].z, y.z),
                       add(old[q].w, y.w));
      }
      if (has(part, q)) *place(part, q) = y;
    }
  }
};

template <typename Shape>
__device__ __forceinline__ void store_fp8_bf16(const Fp8Bf16Out& out, bool adds,
                                               const Fp8Totals<Shape>& totals) {
  constexpr int kOfPiece = Shape::kRows / 64;
  constexpr int kParts = kOfPiece * Shape::kPieces;
  uint4 old[2][kAsideShares];
  if (adds) {
    out.load_old(0, old[0]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      if (part + 1 < kParts) out.load_old(part + 1, old[(part + 1) % 2]);
      out.store<true>(part, &totals.v[part / kOfPiece][part % kOfPiece * 32], old[part % 2]);
    }
  } else {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      out.store<false>(part, &totals.v[part / kOfPiece][part % kOfPiece * 32], old[0]);
    }
  }
}

/// kCount totals of the lane, twice as many columns.
template <int kCount>
__device__ __forceinline__ void store_fp8_fp32(const Fp8Params& params, const Fp8Segment& segment,
                                               int token, int row_end, int n_first,
                                               const float* totals) {
  const int lane = lane_read_here();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int m = token + lane / 4 + i / 2 % 2 * 8;
    const int n = n_first + i / 4 * 8 + lane % 4 * 2 + i % 2;
    if (m < row_end && n < segment.num_out) {
      static_cast<float*>(segment.out)[m * segment.out_stride + n] = totals[i];
    }
  }
}

/// rb(rb(silu(rb(gate))) * rb(up)) of two neighbours, which share a reciprocal: special functions bound the end of a tile.
__device__ __forceinline__ uint32_t fp8_gate_up(float gate0, float gate1, float up0, float up1) {
  constexpr float kLog2E = 1.44269504f;
  // 2^60 squared is a float, and what its inverse leaves of a gate is nothing to its neighbours.
  constexpr float kFarDown = 60.0f;
  const uint32_t gate = narrow_pair(gate0, gate1);
  const uint32_t up = narrow_pair(up0, up1);
  const float g[2] = {low_bf16(gate), high_bf16(gate)};
  float below[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(below[i]) : "f"(fminf(g[i] * -kLog2E, kFarDown)));
    below[i] += 1.0f;
  }
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(below[0] * below[1]));
  const uint32_t silu = narrow_pair(g[0] * (inverse * below[1]), g[1] * (inverse * below[0]));
  return narrow_pair(low_bf16(silu) * low_bf16(up), high_bf16(silu) * high_bf16(up));
}

/// A tile of gate and up: 128 columns of the product, one group of its scales.
template <typename Shape>
__device__ __forceinline__ void store_fp8_gate_up(const Fp8Params& params, Fp8Place place,
                                                  uint32_t aside, int token, int row_end,
                                                  const Fp8Totals<Shape>& totals) {
  static_assert(Shape::kPair);
  const int lane = lane_read_here();
  __syncwarp();
  bool is_far = false;
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // rows lane / 4, then those 8 behind
    const int row = lane / 4 + 8 * h;
    uint32_t pairs[16];
    uint32_t max_pair = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float* gate = &totals.v[0][4 * j + 2 * h];
      const float* up = &totals.v[1][4 * j + 2 * h];
      pairs[j] = fp8_gate_up(gate[0], gate[1], up[0], up[1]);
      max_pair = __vmaxu2(max_pair, pairs[j] & 0x7fff7fffu);
    }
    max_pair = __vmaxu2(max_pair, __shfl_xor_sync(0xffffffffu, max_pair, 1));
    max_pair = __vmaxu2(max_pair, __shfl_xor_sync(0xffffffffu, max_pair, 2));
    const uint32_t largest = max(max_pair & 0xffffu, max_pair >> 16);
    const float bound = widen(bf16{static_cast<uint16_t>(largest)});
    is_far |= token + row < row_end && !(bound < INFINITY);
    const Fp8Scale scale(bound);
    const uint32_t to = aside + aside_place(row, fp8_operand_place(lane % 4 * 2));
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const uint16_t codes = quantise_pair(pairs[j], scale.inverse);
      asm volatile("st.shared.u16 [%0], %1;" ::"r"(to ^ fp8_operand_place(8 * j)), "h"(codes)
                   : "memory");
    }
    if (lane % 4 == 0 && token + row < row_end) {
      params.operand.scales[place.tile * params.operand.scale_stride + token + row] = scale.stored;
    }
  }
  if (is_far) *params.range_flag = 1;
  __syncwarp();
#pragma unroll
  for (int q = 0; q < kAsideShares; ++q) {
    const int row = lane / 8 + 4 * q;
    const uint4 codes = load_aside(aside + aside_place(row, lane % 8 * 16));
    if (token + row >= row_end) continue;
    uint8_t* to = params.operand.values + (token + row) * params.operand.stride +
                  place.tile * kScaleBlock + lane % 8 * 16;
    *reinterpret_cast<uint4*>(to) = codes;
  }
}

template <typename Shape>
__device__ __forceinline__ void store_fp8_tile(const Fp8Params& params, Fp8Ring<Shape> ring,
                                               Fp8Place place, const Fp8Totals<Shape>& totals) {
  const int warp = thread_read_here() / kWarp;
  const int token = place.token_first + 16 * warp;
  const int row_end = fp8_row_end(params, place);
  if constexpr (Shape::kPair) {
    store_fp8_gate_up(params, place, ring.aside(warp), token, row_end, totals);
  } else {
    const Fp8Segment& segment = params.segments[place.segment];
    const int n_first = place.tile * Shape::kTileRows;
    if (params.epilogue == GemmEpilogue::kStoreFp32) {
#pragma unroll
      for (int p = 0; p < Shape::kPieces; ++p) {
        store_fp8_fp32<Shape::kSums>(params, segment, token, row_end, n_first + p * Shape::kRows,
                                     totals.v[p]);
      }
    } else {
      store_fp8_bf16<Shape>({params, segment, ring.aside(warp), token, row_end, n_first},
                            params.epilogue == GemmEpilogue::kResidual, totals);
    }
  }
}

}  // namespace sluice::cuda
