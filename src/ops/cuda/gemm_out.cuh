#pragma once
// From a warpgroup's sums (layout: wgmma.cuh) to what a projection stores: bf16 values go through shared memory, where a token's are side by side, and leave 16
// bytes a thread. The loops that store are rolled: unrolled over a tile's sums they are more than an instruction cache holds, or than is there when a launch begins.

#include <cuda_fp16.h>

#include "ops/cuda/gemm_fragments.cuh"
#include "ops/cuda/gemm_sm90.cuh"

namespace sluice::cuda {

/// threadIdx.x, unknown to the compiler: what is worked out from it is not kept in registers from tile to tile.
__device__ __forceinline__ uint32_t fresh_thread_index() {
  uint32_t index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

/// A warpgroup's way out of one tile, up to kStaged tokens at a time: a token's 64 slots are 128 bytes of staging, 16-byte chunk c at c ^ (token % 8).
template <typename Params, int kStaged>
class TileOut {
 public:
  __device__ __forceinline__ TileOut(const Params& params, GemmPlace place, uint32_t staging)
      : params_(params), segment_(params.segments[place.segment]), staging_(staging) {
    const uint32_t thread = fresh_thread_index();
    const int lane = static_cast<int>(thread % kWarp);
    const int warp = static_cast<int>(thread % kGroupThreads / kWarp);
    group_ = static_cast<int>(thread / kGroupThreads);
    thread_ = static_cast<int>(thread % kGroupThreads);
    const int slots = params.is_pair ? kTileRows / 2 : kTileRows;
    first_row_ = place.tile * slots + group_ * slots / 2;
    // Lanes 0 .. 7 give the rows of the low slot's square, 8 .. 15 those of the high slot's.
    const int low = params.is_pair ? warp : 2 * warp;
    const int high = low + (params.is_pair ? 4 : 1);
    const int chunk = (lane / 8 % 2 == 0 ? low : high) ^ lane % 8;
    square_ = staging + lane % 8 * 128 + chunk * 16;
  }

  /// The calling thread's warpgroup.
  __device__ static __forceinline__ int group() {
    return static_cast<int>(fresh_thread_index()) / kGroupThreads;
  }

  /// All of the warpgroup.
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kGroupThreads) : "memory");
  }

  /// Sums of tokens 8 quad .. 8 quad + 7 of what is staged: the low slot's two, then the high slot's.
  __device__ __forceinline__ void stage(int quad, float low0, float low1, float high0,
                                        float high1) const {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(
                     square_ + quad * 1024),
                 "r"(narrow_pair(low0, low1)), "r"(narrow_pair(high0, high1))
                 : "memory");
  }

  /// The residual stream under what store_plain() will store.
  struct Old {
    uint4 v[kStaged / 16];
  };
  __device__ __forceinline__ Old load_old(int token_first, int num_tokens) const {
    Old old = {};
    if (!params_.is_residual || !segment_.in_vectors) return old;
    const int n = first_row_ + thread_ % 8 * 8;
#pragma unroll
    for (int i = 0; i < kStaged / 16; ++i) {
      const int token = token_first + thread_ / 8 + 16 * i;
      if (thread_ / 8 + 16 * i < num_tokens && token < params_.num_rows &&
          n + 8 <= segment_.num_out) {
        old.v[i] = *reinterpret_cast<const uint4*>(segment_.out + token * segment_.out_stride + n);
      }
    }
    return old;
  }

  __device__ __forceinline__ bool is_pair() const {
    return params_.is_pair;
  }

  /// Stores what is staged, tokens token_first .. + num_tokens (a multiple of 8), of one projection.
  __device__ __forceinline__ void store_plain(int token_first, int num_tokens,
                                              const Old& old) const {
    const int n = first_row_ + thread_ % 8 * 8;
#pragma unroll
    for (int i = 0; i < kStaged / 16; ++i) {
      const int at = thread_ / 8 + 16 * i;
      if (at >= num_tokens || token_first + at >= params_.num_rows || n >= segment_.num_out) {
        continue;
      }
      uint4 v = staged(at, thread_ % 8);
      bf16* to = segment_.out + (token_first + at) * segment_.out_stride + n;
      if (segment_.in_vectors && n + 8 <= segment_.num_out) {
        if (params_.is_residual) {
          v = make_uint4(add_pair(old.v[i].x, v.x), add_pair(old.v[i].y, v.y),
                         add_pair(old.v[i].z, v.z), add_pair(old.v[i].w, v.w));
        }
        *reinterpret_cast<uint4*>(to) = v;
      } else {
        store_one_by_one(to, v, segment_.num_out - n, params_.is_residual);
      }
    }
  }

  /// The same of gate and up. A lane takes 8 neighbouring rows of a token, four lanes the half of 64 that lies in 64 bytes of operands (packed.h).
  __device__ __forceinline__ void store_gate_up(int token_first, int num_tokens) const {
    constexpr float kShift = 1.0f / (1 << kActivationShift);
    const int t = thread_ % 4;
    const int n = first_row_ + t * 8;
    constexpr int kTurns = kStaged * 4 / kGroupThreads;
    uint4 gate_words[kTurns], up_words[kTurns];
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {  // behind num_tokens they are there too, and of no use
      const int at = thread_ / 4 + i * (kGroupThreads / 4);
      gate_words[i] = staged(at, t);
      up_words[i] = staged(at, 4 + t);
    }
    bool out_of_range = false;
#pragma unroll
    for (int i = 0; i < kTurns; ++i) {
      const int at = thread_ / 4 + i * (kGroupThreads / 4);
      if (at >= num_tokens) break;  // a whole warp's
      const uint4 gate = gate_words[i];
      const uint4 up = up_words[i];
      const uint32_t gates[4] = {gate.x, gate.y, gate.z, gate.w};
      const uint32_t ups[4] = {up.x, up.y, up.z, up.w};
      uint32_t operands[4], values[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t s =
            narrow_pair(quick_silu(low_bf16(gates[j])), quick_silu(high_bf16(gates[j])));
        values[j] = narrow_pair(low_bf16(s) * low_bf16(ups[j]), high_bf16(s) * high_bf16(ups[j]));
        const float first = low_bf16(values[j]);
        const float second = high_bf16(values[j]);
        const __half2 halves = __floats2half2_rn(first * kShift, second * kShift);
        operands[j] = *reinterpret_cast<const uint32_t*>(&halves);
        out_of_range |= is_out_of_range(operands[j]);
      }
      const uint4 chunk =
          gather_chunk(make_uint4(operands[0], operands[1], operands[2], operands[3]));
      const int64_t token = token_first + at;
      if (token >= params_.num_rows || n >= segment_.num_out) continue;
      __half* to = static_cast<__half*>(params_.operand) + token * params_.operand_stride;
      *reinterpret_cast<uint4*>(to + first_row_ + t * 8) = chunk;
      if (segment_.out == nullptr) continue;
      bf16* plain = segment_.out + token * segment_.out_stride + n;
      const uint4 v = make_uint4(values[0], values[1], values[2], values[3]);
      if (segment_.in_vectors) {
        *reinterpret_cast<uint4*>(plain) = v;
      } else {
        store_one_by_one(plain, v, 8, false);
      }
    }
    if (out_of_range) raise_flag(params_.range_flag);
  }

 private:
  __device__ __forceinline__ uint4 staged(int token, int chunk) const {
    const Words16 w = load_words_16(staging_ + token * 128 + (chunk ^ token % 8) * 16);
    return make_uint4(w.v[0], w.v[1], w.v[2], w.v[3]);
  }

  __device__ static __forceinline__ uint32_t add_pair(uint32_t old, uint32_t value) {
    return narrow_pair(low_bf16(old) + low_bf16(value), high_bf16(old) + high_bf16(value));
  }

  __device__ static __forceinline__ void store_one_by_one(bf16* to, uint4 v, int count,
                                                          bool is_residual) {
#pragma unroll 1
    for (int i = 0; i < min(count, 8); ++i) {
      bf16 value = {static_cast<uint16_t>(v.x)};
      if (is_residual) {
        value.bits = static_cast<uint16_t>(narrow_pair(widen(to[i]) + widen(value), 0.0f));
      }
      to[i] = value;
      v.x = __funnelshift_r(v.x, v.y, 16);
      v.y = __funnelshift_r(v.y, v.z, 16);
      v.z = __funnelshift_r(v.z, v.w, 16);
      v.w >>= 16;
    }
  }

  /// Four lanes t hold four words each, lane t word t of four operand chunks; lane q gets chunk q.
  __device__ static __forceinline__ uint4 gather_chunk(uint4 w) {
    constexpr uint32_t kAll = 0xffffffffu;
    const bool upper = threadIdx.x % 4 / 2 != 0;
    const uint32_t a = __shfl_xor_sync(kAll, upper ? w.x : w.z, 2);
    const uint32_t b = __shfl_xor_sync(kAll, upper ? w.y : w.w, 2);
    if (upper) {
      w.x = a;
      w.y = b;
    } else {
      w.z = a;
      w.w = b;
    }
    const bool odd = threadIdx.x % 2 != 0;
    const uint32_t c = __shfl_xor_sync(kAll, odd ? w.x : w.y, 1);
    const uint32_t d = __shfl_xor_sync(kAll, odd ? w.z : w.w, 1);
    if (odd) {
      w.x = c;
      w.z = d;
    } else {
      w.y = c;
      w.w = d;
    }
    return w;
  }

  const Params& params_;
  const GemmKernelSegment& segment_;
  uint32_t staging_, square_;
  int group_;
  int thread_;
  int first_row_;  // of the warpgroup in the output
};

}  // namespace sluice::cuda
