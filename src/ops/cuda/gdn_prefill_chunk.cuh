#pragma once
// A chunk of the scan: a warpgroup has 64 value columns of a head, a warp 16 of them with all 128 rows of the state. Columns of v never meet, so warps share nothing but what
// they read.
//
// All products are taken transposed: columns of v are the rows of A and of the sums, rows of the chunk (or of k) the n side. A sum's registers are then the next
// product's A operand, and what a lane writes of o is what it has read of v:
//
//   E^T = v^T - (S^T k^T) diag(exp(G))          X^T = E^T T^T, T with beta in its columns
//   o^T = (S^T q^T) diag(exp(G)) + X^T B^T      S^T = exp(G_last) S^T + (X^T diag(exp(G_last - G))) k
//
// A row's sums over rows end at its own: behind it T and B are zero, and what meets a zero changes no bit. The state's sums over a chunk begin at zero and are added to
// the decayed state by one fused multiply-add, so that the instruction's truncation acts on them alone.
//
// One warp a scheduler: what waits, waits alone. So products stand in the tensor cores' queue (about six instructions) before what is made of earlier ones, and what comes from shared
// memory is asked for ahead. The assembler has its own limits: sums of fewer n must be a beginning of those of more n (hence places, gdn_prefill_layout.cuh), nothing may be in flight where
// the loop closes, and it moves arithmetic behind waits if nothing holds it (settle()).

#include "ops/cuda/gdn_prefill_layout.cuh"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kGroupThreads = 4 * kWarp;
constexpr int kScanThreads = kGroupThreads + kWarp;
constexpr int kColumnsOfWarp = 16;
constexpr int kSlices = kTiles;  // blocks of a head
constexpr int kStages = 3;
constexpr int kValuesAt = kKeyImageBytes;  // of a stage
constexpr int kHeadAt = kValuesAt + kTileBytes;
constexpr int kStageBytes = (kHeadAt + kHeadImageBytes + 1023) / 1024 * 1024;
constexpr int kOutputsAt = kStages * kStageBytes;  // a tile of o
constexpr int kStatesAt = kOutputsAt + kTileBytes;
constexpr int kBarriersAt = kStatesAt + kHeadDim * kTileColumns * static_cast<int>(sizeof(float));
constexpr int kSinkAt =
    kBarriersAt + kStages * static_cast<int>(sizeof(uint64_t));  // a word a thread
constexpr int kScanSharedBytes = kSinkAt + kGroupThreads * static_cast<int>(sizeof(uint32_t));
static_assert(kScanSharedBytes <= 227 << 10);
constexpr int kRowTiles = kRows / 8;           // n tiles of 8 rows
constexpr int kSteps = kTileColumns / kBlock;  // k16 steps of a half of k
constexpr int kHalves = kHeadDim / kTileColumns;

/// Named barriers of all threads.
constexpr int kChunkDone = 1;  // the warpgroup passes, the warp beside it waits
constexpr int kTileFree = 2;   // the other way round

/// Of 16 columns of v and 64, or 128, n: sums[4 n + i] of m16n8 tile n.
using Sums = float[4 * kRowTiles];
using WideSums = float[8 * kRowTiles];

/// k16 steps of A, high and low parts.
template <int kCount>
struct Operands {
  Operand high[kCount], low[kCount];

  __device__ __forceinline__ void set(int step, const float* from) {
    split_tiles(from, high[step], low[step]);
  }
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int s = 0; s < kCount; ++s) pin(high[s]), pin(low[s]);
  }
  /// Steps [first, last) are made here, not behind the wait that follows: the assembler would wait first. `sink`: a word of shared memory that nobody reads.
  __device__ __forceinline__ void settle(int first, int last, uint32_t sink) const {
    uint32_t all = 0;
#pragma unroll
    for (int s = first; s < last; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) all ^= high[s][i] ^ low[s][i];
    }
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(sink), "r"(all) : "memory");
  }
};

/// A warp's [16 columns of v, 128 of k]: fp32 in shared memory, each thread's own, and what enters products in registers.
struct ScanState {
  uint32_t memory;
  Operands<kHalves * kSteps> parts;

  /// Element (k, column) of a head's state in memory, and of this lane.
  static __device__ __forceinline__ int place(int i, int column) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return (i / 4 * 8 + 2 * (lane % 4) + i % 2) * kHeadDim + column + lane / 4 + i / 2 % 2 * 8;
  }
  __device__ __forceinline__ uint32_t four(int i) const {
    return memory + static_cast<uint32_t>(i) * kGroupThreads * 16;
  }
  __device__ __forceinline__ void load(const float* from, int column) {
    WideSums S;
#pragma unroll
    for (int i = 0; i < 8 * kRowTiles; ++i) S[i] = load_state(from + place(i, column));
#pragma unroll
    for (int s = 0; s < kHalves * kSteps; ++s) parts.set(s, S + 8 * s);
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) store_floats(four(i), S + 4 * i);
  }
  __device__ __forceinline__ void store(float* to, int column) const {
#pragma unroll 4
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      float S[4];
      load_floats(S, four(i));
#pragma unroll
      for (int j = 0; j < 4; ++j) to[place(4 * i + j, column)] = S[j];
    }
  }
  /// Half `half` of the fp32 values, on their way from shared memory.
  __device__ __forceinline__ void fetch(int half, Sums& S) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) load_floats(S + 4 * i, four(half * kRowTiles + i));
  }
  __device__ __forceinline__ void advance(int half, float decay, const WideSums& update, Sums& S) {
#pragma unroll
    for (int i = 0; i < 4 * kRowTiles; ++i) {
      S[i] = fmaf(update[4 * kRowTiles * half + i], kUnscale, decay * S[i]);
    }
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) store_floats(four(half * kRowTiles + i), S + 4 * i);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) parts.set(half * kSteps + s, S + 8 * s);
  }
};

/// sums (+)= S^T [k^T q^T], k16 steps [kFirst, kLast); `keys`: a key image.
template <int kFirst, int kLast>
__device__ __forceinline__ void read_state(const ScanState& state, uint32_t keys, WideSums& sums) {
  constexpr uint32_t kTile = kTileBytes >> 4;
#pragma unroll
  for (int s = kFirst; s < kLast; ++s) {
    const auto step = static_cast<uint32_t>(s);
    const uint32_t at = keys + step / kSteps * 2 * kTile + step % kSteps * kTileStep;
    if (s == 0) {
      multiply_tiles<false, 0>(sums, state.parts.high[s], at);
    } else {
      multiply_tiles<true, 0>(sums, state.parts.high[s], at);
    }
    multiply_tiles<true, 0>(sums, state.parts.low[s], at);
  }
}

/// sums (+)= x triangle^T, block columns [j, kLast).
template <bool kBegins, int j, int kLast>
__device__ __forceinline__ void multiply_triangle(const Operands<kBlocks>& x, uint32_t triangle,
                                                  float* sums) {
  if constexpr (j < kLast) {
    constexpr int kCount = kRows - j * kBlock;
    constexpr int kStep = kBlocks - 1 - j;  // the block's place
    constexpr uint32_t kLowPart = kTrianglePartBytes >> 4;
    auto& mine = *reinterpret_cast<float(*)[kCount / 2]>(sums);
    const uint32_t column = triangle + (triangle_block(kBlocks - 1, j) >> 4);
    multiply_column<kCount, !kBegins>(mine, x.high[kStep], column);
    multiply_column<kCount, true>(mine, x.low[kStep], column);
    multiply_column<kCount, true>(mine, x.high[kStep], column + kLowPart);
    multiply_triangle<false, j + 1, kLast>(x, triangle, sums);
  }
}

/// A lane's row of matrices of a warp's 16 columns in a tile of values, whose rows are in order: the two n tiles of a block of places, times two units.
__device__ __forceinline__ uint32_t values_row(int block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  return static_cast<uint32_t>(
      unit_at(place_of(block * kBlock) + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2));
}

/// Factors of the rows of n tile n, at `factors` their first.
__device__ __forceinline__ float2 row_factors(uint32_t factors, int n) {
  return load_floats(factors + (threadIdx.x % 4 * 2 + static_cast<unsigned>(n) * 8) *
                                   static_cast<unsigned>(sizeof(float)));
}
/// x times its rows' factors, two n tiles from n on.
__device__ __forceinline__ void scale_block(float (&to)[8], const float* x, uint32_t factors,
                                            int n) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 f = row_factors(factors, n + i);
    to[4 * i] = x[4 * i] * f.x, to[4 * i + 1] = x[4 * i + 1] * f.y;
    to[4 * i + 2] = x[4 * i + 2] * f.x, to[4 * i + 3] = x[4 * i + 3] * f.y;
  }
}

/// What E is made of besides k S.
struct ErrorTerms {
  Operand v[kBlocks];
  float2 key[kRowTiles];

  __device__ __forceinline__ void load(uint32_t stage) {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) load_transposed(v[b], stage + kValuesAt + values_row(b));
    const uint32_t factors = stage + kHeadAt + kFactorsAt + offsetof(Factors, key);
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) key[n] = row_factors(factors, n);
  }
  /// A block of v - exp(G) k S from the unnormalised k S.
  __device__ __forceinline__ void subtract(int block, const WideSums& sums, float (&e)[8]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 f = key[2 * block + i];
      const float* x = sums + 8 * block + 4 * i;
      e[4 * i] = fmaf(-f.x, x[0], low_bf16(v[block][2 * i]));
      e[4 * i + 1] = fmaf(-f.y, x[1], high_bf16(v[block][2 * i]));
      e[4 * i + 2] = fmaf(-f.x, x[2], low_bf16(v[block][2 * i + 1]));
      e[4 * i + 3] = fmaf(-f.y, x[3], high_bf16(v[block][2 * i + 1]));
    }
  }
};

/// A warpgroup's way through a chunk: from S^T [k^T q^T] of this one to that of the next. Products of a block of rows are asked for as soon as what they need of it is there, so that
/// the tensor cores have the next product when they are done with one: they take instructions about six ahead.
struct ChunkScan {
  ScanState& state;
  WideSums& sums;     // S^T [k^T q^T]
  ErrorTerms& terms;  // the chunk's
  uint32_t stage, sink;
  Operands<kBlocks> x;  // E, then X
  Operands<kBlocks> moves;
  Sums first, outputs;
  float rest[4 * (kRowTiles - 2)];
  WideSums updates;

  __device__ __forceinline__ uint32_t factors() const { return stage + kHeadAt + kFactorsAt; }
  __device__ __forceinline__ uint32_t triangles() const { return tile_at(stage) + (kHeadAt >> 4); }

  /// E, and T times it: the first rows' as soon as they are there, with sums of their own.
  __device__ __forceinline__ void solve() {
    const auto subtract = [&](int block) {
      float e[8];
      terms.subtract(block, sums, e);
      x.set(block, e);
    };
    subtract(kBlocks - 1);
    wgmma_fence();
    multiply_triangle<true, 0, 1>(x, triangles(), first);
    wgmma_commit();
#pragma unroll
    for (int block = kBlocks - 2; block >= 0; --block) subtract(block);
    wgmma_fence();
    multiply_triangle<true, 1, 2>(x, triangles(), rest);
    wgmma_commit();
    multiply_triangle<false, 2, 3>(x, triangles(), rest);
    wgmma_commit();
    multiply_triangle<false, 3, 4>(x, triangles(), rest);
    wgmma_commit();
  }
  /// X of two blocks as they come, and k times it.
  template <int j>
  __device__ __forceinline__ void update(const float2 (&tail)[kRowTiles]) {
    wgmma_wait<kBlocks - 2>();
    if constexpr (j == 0) pin(first);
    float solved[2][8];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int step = kBlocks - 1 - j - n;
      pin(x.high[step]), pin(x.low[step]);
      if (step < kBlocks - 1) pin(reinterpret_cast<float(&)[8]>(rest[8 * step]));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        solved[n][i] = first[8 * step + i];
        if (step < kBlocks - 1) solved[n][i] += rest[8 * step + i];
      }
      float scaled[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 f = tail[2 * step + i / 4];
        scaled[i] = solved[n][i] * (i % 2 == 0 ? f.x : f.y);
      }
      moves.set(step, scaled);
    }
    wgmma_fence();
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int step = kBlocks - 1 - j - n;
      const uint32_t rows = tile_at(stage) + static_cast<uint32_t>(step) * kRowsStep;
      if (j + n == 0) {
        multiply_tiles<false, 2 * kTileBytes>(updates, moves.high[step], rows);
      } else {
        multiply_tiles<true, 2 * kTileBytes>(updates, moves.high[step], rows);
      }
      multiply_tiles<true, 2 * kTileBytes>(updates, moves.low[step], rows);
      wgmma_commit();
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (float& y : solved[n]) y *= kUnscale;
      x.set(kBlocks - 1 - j - n, solved[n]);
    }
  }
  __device__ __forceinline__ void scale_outputs() {
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      scale_block(reinterpret_cast<float(&)[8]>(outputs[8 * b]), sums + 4 * kRowTiles + 8 * b,
                  factors() + offsetof(Factors, query), 2 * b);
    }
  }
  /// o of the chunk into a tile.
  __device__ __forceinline__ void store_outputs(uint32_t tile) const {
    gdn::barrier_sync(kTileFree, kScanThreads);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      uint32_t o[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* y = outputs + 8 * b + 2 * i;
        o[i] = narrow_pair(y[0] * kUnscale, y[1] * kUnscale);
      }
      store_transposed(tile + values_row(b), o[0], o[1], o[2], o[3]);
    }
    shared_written();
    pass_barrier(kChunkDone, kScanThreads);
  }

  /// `next`: the next chunk's stage, which has come, unless this one is the last.
  template <bool kIsLast>
  __device__ __forceinline__ void run(uint32_t next, uint32_t tile) {
    const uint32_t outputs_triangle = triangles() + (kTriangleBytes >> 4);
    const uint32_t next_keys = tile_at(next);
    solve();
    float2 tail[kRowTiles];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      tail[n] = row_factors(factors() + offsetof(Factors, tail), n);
    }
    const float decay = load_floats(factors() + offsetof(Factors, decay)).x;
    update<0>(tail);
    update<2>(tail);
    scale_outputs();
    wgmma_fence();
    multiply_triangle<false, 0, kBlocks / 2>(x, outputs_triangle, outputs);
    wgmma_commit();
    Sums S[kHalves];
    state.fetch(0, S[0]);
    wgmma_wait<1>();
    pin(updates);
    moves.hold();
    state.fetch(1, S[1]);
    state.advance(0, decay, updates, S[0]);
    state.parts.settle(0, kSteps, sink);
    wgmma_fence();
    multiply_triangle<false, kBlocks / 2, kBlocks>(x, outputs_triangle, outputs);
    wgmma_commit();
    state.advance(1, decay, updates, S[1]);
    state.parts.settle(kSteps, 2 * kSteps, sink);
    if constexpr (!kIsLast) {
      wgmma_fence();
      read_state<0, 2 * kSteps>(state, next_keys, sums);
      wgmma_commit();
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    pin(outputs);
    x.hold();
    store_outputs(tile);
    if constexpr (!kIsLast) {
      terms.load(next);
      wgmma_wait<0>();
      pin(sums);
      state.parts.hold();
    }
  }
};

}  // namespace sluice::cuda::gdn_prefill
