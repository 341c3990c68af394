#pragma once
// The delta rule, a tile of rows after the other, with the state in registers.

#include "ops/cuda/gdn_core_block.cuh"

namespace sluice::cuda::gdn {

/// A thread's part of the state: k rows 32 (warp % 4) + 8 (lane / 8) + {0 .. 7}, columns 32 (warp / 4)
/// + 4 (lane % 8) + {0 .. 3}.
struct StateTile {
  float S[kRowsOfK][kColumnsOfThread];

  __device__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < kRowsOfK; ++i) {
      const float4 v = load_state(from + i * kHeadDim);
      S[i][0] = v.x, S[i][1] = v.y, S[i][2] = v.z, S[i][3] = v.w;
    }
  }
  __device__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < kRowsOfK; ++i) store_state(to + i * kHeadDim, S[i]);
  }
};

/// Shared memory by address: the loop over rows keeps few registers, and the compiler would make
/// generic pointers anew in each round.
__device__ __forceinline__ uint32_t fixed_address(const void* at) {
  auto address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
  asm volatile("" : "+r"(address));
  return address;
}
__device__ __forceinline__ float4 load_four(uint32_t at) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
  return v;
}
__device__ __forceinline__ float2 load_two(uint32_t at) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
  return v;
}
__device__ __forceinline__ void store_one(uint32_t at, float v) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}
__device__ __forceinline__ void load_eight(uint32_t at, float (&to)[kRowsOfK]) {
  const float4 a = load_four(at);
  const float4 b = load_four(at + sizeof(float4));
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

/// Over the four lanes of the same columns: a lane gets the sum of one, lane / 8.
__device__ __forceinline__ float reduce(const float (&a)[kColumnsOfThread], unsigned lane) {
  const auto halve = [](bool upper, float lo, float hi, int step) {
    return (upper ? hi : lo) + __shfl_xor_sync(kAllLanes, upper ? lo : hi, step);
  };
  const bool by16 = (lane & 16) != 0;
  const float a0 = halve(by16, a[0], a[2], 16);
  const float a1 = halve(by16, a[1], a[3], 16);
  return halve((lane & 8) != 0, a0, a1, 8);
}

/// o of a row, 32 columns by one warp, and its squares to every block of the cluster.
template <typename L>
__device__ __forceinline__ void finish_o(Shared<L>& shared, int row, int in_tile, float unit_q,
                                         unsigned group, unsigned slice, unsigned lane) {
  const unsigned column = group * kColumnsOfWarp + lane;
  const auto& parts = shared.o[in_tile];
  const float sum = (parts[0][column] + parts[1][column]) + (parts[2][column] + parts[3][column]);
  const bf16 o = round_half(sum * unit_q);
  shared.rows[row].values[column] = o;
  const float squares = warp_sum(widen(o) * widen(o));
  constexpr unsigned kGroups = L::kColumns / kColumnsOfWarp;
  float* to = &shared.rows[row].sums[slice * kGroups + group];
  if constexpr (L::kSlices > 1) {
    if (lane < L::kSlices) sums_send(to, &shared.all_sums, lane, squares);  // to block `lane`
  } else {
    if (lane == 0) *to = squares;
  }
}

/// `count` rows, a tile, the first being `row` of the run.
template <typename L>
__device__ __forceinline__ void recur(StateTile& tile, Shared<L>& shared, const Place& at,
                                      float* checkpoint, int row, int count) {
  unsigned warp = threadIdx.x / kWarp;
  unsigned lane = threadIdx.x % kWarp;
  asm volatile("" : "+r"(warp), "+r"(lane));
  const unsigned over_k = warp % kWarpsOverK;
  const unsigned group = warp / kWarpsOverK;
  const unsigned own = group * kColumnsOfWarp + lane % 8 * kColumnsOfThread;  // first column
  const unsigned summed = own + lane / 8;                                     // of reduce()
  constexpr uint32_t kQkBytes = sizeof(shared.qk[0]);
  constexpr uint32_t kPartialsBytes = sizeof(shared.partials[0]);
  constexpr uint32_t kColumnBytes = L::kColumns * sizeof(float);
  constexpr uint32_t kRowBytes = sizeof(SharedRow<L>);
  uint32_t qk = fixed_address(&shared.qk[0][0][over_k * 32 + lane / 8 * kRowsOfK]);
  const uint32_t parts = fixed_address(&shared.partials[0][0][own]);
  const uint32_t part = fixed_address(&shared.partials[0][over_k][summed]);
  uint32_t o_part = fixed_address(&shared.o[0][over_k][summed]);
  uint32_t gate_at = fixed_address(&shared.rows[row].gate);
  uint32_t value_at = fixed_address(&shared.rows[row].values[own]);
  // Lane 2 i + j: the factor of q (j = 0) or k of row i of the tile.
  float units = 0.0f;
  if (lane < 2 * kTileRows) {
    const float4 s = *reinterpret_cast<const float4*>(shared.squares[lane / 2][lane % 2]);
    units = inverse_root(((s.x + s.y) + (s.z + s.w)) + kL2NormEps);
    if (lane % 2 == 0) units *= kQueryScale;
  }
  float k[kRowsOfK];
  float o[kColumnsOfThread] = {};
  load_eight(qk + kQkBytes / 2, k);
  const int kept =
      at.checkpoint_rows - row;  // rows of the tile behind which the checkpoint is taken
  int i = 0;
#pragma unroll 1
  while (i < count) {
    const int stop = i < kept && kept < count ? kept : count;
#pragma unroll 1
    for (; i < stop; ++i) {
      const float2 gate = load_two(gate_at);
      const float2 v_bits = load_two(value_at);
      const float unit_k = __shfl_sync(kAllLanes, units, 2 * i + 1);
      const uint32_t parity = i % 2 * kPartialsBytes;
      float memory[kColumnsOfThread] = {};
#pragma unroll
      for (int j = 0; j < kRowsOfK; ++j) {
#pragma unroll
        for (int c = 0; c < kColumnsOfThread; ++c) memory[c] = fmaf(tile.S[j][c], k[j], memory[c]);
      }
      store_one(part + parity, reduce(memory, lane));
      // That of the row before, off the path from state to state.
      const float o_sum = reduce(o, lane);
      if (i > 0) store_one(o_part - kWarpsOverK * kColumnBytes, o_sum);
      // d = beta (v - S^T k) with the factor of the k it will be multiplied with: v * weight + S^T k * scale.
      const float weight = gate.y * unit_k;
      float scale = -(gate.x * unit_k) * weight;
      float d[kColumnsOfThread] = {low_bf16(__float_as_uint(v_bits.x)) * weight,
                                   high_bf16(__float_as_uint(v_bits.x)) * weight,
                                   low_bf16(__float_as_uint(v_bits.y)) * weight,
                                   high_bf16(__float_as_uint(v_bits.y)) * weight};
      asm volatile("" : "+f"(scale), "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]));
      barrier_sync(kPartials + group, kWarpsOverK * kWarp);
      const float4 a = load_four(parts + parity);
      const float4 b = load_four(parts + parity + kColumnBytes);
      const float4 e = load_four(parts + parity + 2 * kColumnBytes);
      const float4 f = load_four(parts + parity + 3 * kColumnBytes);
      float q[kRowsOfK];
      load_eight(qk, q);
      d[0] = fmaf(scale, (a.x + b.x) + (e.x + f.x), d[0]);
      d[1] = fmaf(scale, (a.y + b.y) + (e.y + f.y), d[1]);
      d[2] = fmaf(scale, (a.z + b.z) + (e.z + f.z), d[2]);
      d[3] = fmaf(scale, (a.w + b.w) + (e.w + f.w), d[3]);
#pragma unroll
      for (int j = 0; j < kRowsOfK; ++j) {
#pragma unroll
        for (int c = 0; c < kColumnsOfThread; ++c) {
          tile.S[j][c] = fmaf(k[j], d[c], gate.x * tile.S[j][c]);
        }
      }
      qk += kQkBytes;
      load_eight(qk + kQkBytes / 2, k);  // behind the last row: something, unused
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; ++c) {
        o[c] = 0.0f;
#pragma unroll
        for (int j = 0; j < kRowsOfK; ++j) o[c] = fmaf(tile.S[j][c], q[j], o[c]);
      }
      gate_at += kRowBytes;
      value_at += kRowBytes;
      o_part += kWarpsOverK * kColumnBytes;
    }
    if (i == kept) tile.store(checkpoint);
  }
  store_one(o_part - kWarpsOverK * kColumnBytes, reduce(o, lane));
  barrier_sync(kPartials + group, kWarpsOverK * kWarp);
#pragma unroll 1
  for (int i = static_cast<int>(over_k); i < count; i += kWarpsOverK) {
    const float unit_q = __shfl_sync(kAllLanes, units, 2 * i);
    finish_o(shared, row + i, i, unit_q, group, at.slice, lane);
  }
}

}  // namespace sluice::cuda::gdn
