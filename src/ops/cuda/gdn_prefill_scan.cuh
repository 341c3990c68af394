#pragma once
// The scan over a run's chunks: a block has 64 value columns of a head, a warp 16 of them with all 128 rows of the state, in registers. Columns of v never meet, so
// warps share nothing but the images, which come by bulk copies, kStages chunks deep.
//
// All products are taken transposed: 16 columns of v are the rows of A and of the sums, rows of the chunk (or of k) the n side. A sum's registers are then the next
// product's A operand, and what a lane writes of o is what it has read of v:
//
//   E^T = v^T - (S^T k^T) diag(exp(G))          X^T = E^T T^T, T with beta in its columns
//   o^T = (S^T q^T) diag(exp(G)) + X^T B^T      S^T = exp(G_last) S^T + (X^T diag(exp(G_last - G))) k
//
// A row's sums over rows end at its own: behind it T and B are zero, and what meets a zero changes no bit. The state's sums over a chunk begin at zero and are added to
// the decayed state by one fused multiply-add, so that the instruction's truncation acts on them alone.

#include "ops/cuda/gdn_prefill_layout.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kScanWarps = 4;
constexpr int kScanThreads = kScanWarps * kWarp;
constexpr int kColumnsOfWarp = 16;
constexpr int kSlices = kHeadDim / (kScanWarps * kColumnsOfWarp);
constexpr int kStages = 2;  // leaves room for a block of factors_kernel beside it
constexpr int kStageBytes = kKeyImageBytes + kHeadImageBytes;
constexpr int kScanSharedBytes =
    kStages * kStageBytes + kStages * static_cast<int>(sizeof(uint64_t));
constexpr int kTiles = kRows / 8;  // n tiles of 8 rows
constexpr int kStepsOfK = kHeadDim / 16;
constexpr int kTilesOfK = kHeadDim / 8;

/// Do o's products take both halves of their f16 pairs, as the state's do? One half each leaves o errors of up to 2e-3 of its rms, as large as its own rounding (emulated).
constexpr bool kFullOutputs = true;

using Sums = float[kTiles][4];
using Operand = uint32_t[4];

/// A warp's [16 columns of v, 128 of k], as sums of m16n8: tile j has k 8 j .. 8 j + 7.
struct ScanState {
  float S[kTilesOfK][4];

  /// Element (k, column) of a head's state in memory, and of this lane.
  static __device__ __forceinline__ int place(int j, int i, int column) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return (8 * j + 2 * (lane % 4) + i % 2) * kHeadDim + column + lane / 4 + i / 2 * 8;
  }
  __device__ __forceinline__ void load(const float* from, int column) {
#pragma unroll
    for (int j = 0; j < kTilesOfK; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) S[j][i] = from[place(j, i, column)];
    }
  }
  __device__ __forceinline__ void store(float* to, int column) const {
#pragma unroll
    for (int j = 0; j < kTilesOfK; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[place(j, i, column)] = S[j][i];
    }
  }
};

/// Two tiles of sums as the A operand of 16 of their n.
__device__ __forceinline__ void split_tiles(const float (&a)[4], const float (&b)[4], Operand& high,
                                            Operand& low) {
  const SplitPair parts[4] = {split(a[0], a[1]), split(a[2], a[3]), split(b[0], b[1]),
                              split(b[2], b[3])};
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = parts[i].high, low[i] = parts[i].low;
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0.0f;
  }
}

/// sums += (high + low) vectors^T of one k16 step; `rows`: k or q of an image, at the lane's row of matrices.
template <bool kFull>
__device__ __forceinline__ void add_step(Sums& sums, const Operand& high_part,
                                         const Operand& low_part, uint32_t rows) {
  Operand b[kBlocks];
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) load_matrices(b[m], rows + m * kBlock * kRowBytes);
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
    mma_16816(sums[2 * m], high_part, b[m][0], b[m][1]);
    mma_16816(sums[2 * m + 1], high_part, b[m][2], b[m][3]);
  }
  if constexpr (kFull) {
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      mma_16816(sums[2 * m], low_part, b[m][0], b[m][1]);
      mma_16816(sums[2 * m + 1], low_part, b[m][2], b[m][3]);
    }
  }
}

/// sums += x triangle^T.
template <bool kFull>
__device__ __forceinline__ void add_triangle(Sums& sums, const Sums& x, uint32_t triangle) {
  const uint32_t mine = triangle + threadIdx.x % kWarp * sizeof(Operand);
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    Operand high_part, low_part;
    split_tiles(x[2 * j], x[2 * j + 1], high_part, low_part);
    Operand b[kBlocks], rest[kBlocks];
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      const uint32_t at = mine + static_cast<uint32_t>(triangle_block(i, j)) * 2 * kMatrixBytes;
      load_words(b[i], at);
      if constexpr (kFull) load_words(rest[i], at + kMatrixBytes);
    }
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      mma_16816(sums[2 * i], high_part, b[i][0], b[i][1]);
      mma_16816(sums[2 * i + 1], high_part, b[i][2], b[i][3]);
    }
    if constexpr (kFull) {
#pragma unroll
      for (int i = j; i < kBlocks; ++i) {
        mma_16816(sums[2 * i], low_part, b[i][0], b[i][1]);
        mma_16816(sums[2 * i + 1], low_part, b[i][2], b[i][3]);
      }
#pragma unroll
      for (int i = j; i < kBlocks; ++i) {
        mma_16816(sums[2 * i], high_part, rest[i][0], rest[i][1]);
        mma_16816(sums[2 * i + 1], high_part, rest[i][2], rest[i][3]);
      }
    }
  }
}

/// A lane's part of 16 columns of a value image.
struct Values {
  uint32_t words[2][kTiles];  // column g, column g + 8: rows 8 n + 2 t, + 1

  __device__ __forceinline__ void load(const uint8_t* from) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      load_global(words[c], from + c * 8 * kRows * 2);
      load_global(words[c] + 4, from + c * 8 * kRows * 2 + 16);
    }
  }
  __device__ __forceinline__ void store(uint8_t* to) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      auto* vectors = reinterpret_cast<uint4*>(to + c * 8 * kRows * 2);
      const uint32_t* w = words[c];
      vectors[0] = make_uint4(w[0], w[1], w[2], w[3]);
      vectors[1] = make_uint4(w[4], w[5], w[6], w[7]);
    }
  }
};

/// S^T k^T and S^T q^T of a chunk.
template <bool kFull>
__device__ __forceinline__ void read_state(const ScanState& state, uint32_t key_image, Sums& keys,
                                           Sums& queries) {
  const unsigned lane = threadIdx.x % kWarp;
  const int row = static_cast<int>(lane / 16 * 8 + lane % 8);
  const int unit = static_cast<int>(lane / 8 % 2);
  clear(keys);
  clear(queries);
#pragma unroll
  for (int s = 0; s < kStepsOfK; ++s) {
    Operand high_part, low_part;
    split_tiles(state.S[2 * s], state.S[2 * s + 1], high_part, low_part);
    const uint32_t at = key_image + static_cast<uint32_t>(unit_at(row, 2 * s + unit));
    add_step<true>(keys, high_part, low_part, at);
    add_step<kFull>(queries, high_part, low_part, at + kVectorsBytes);
  }
}

/// S <- decay S + (x tail)^T k.
__device__ __forceinline__ void advance_state(ScanState& state, const Sums& x, uint32_t key_image,
                                              uint32_t factors) {
  const unsigned lane = threadIdx.x % kWarp;
  Operand high_part[kBlocks], low_part[kBlocks];
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    float scaled[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 tail = load_floats(factors + offsetof(Factors, tail) +
                                      ((2 * j + n) * 8 + lane % 4 * 2) * sizeof(float));
      scaled[n][0] = x[2 * j + n][0] * tail.x, scaled[n][1] = x[2 * j + n][1] * tail.y;
      scaled[n][2] = x[2 * j + n][2] * tail.x, scaled[n][3] = x[2 * j + n][3] * tail.y;
    }
    split_tiles(scaled[0], scaled[1], high_part[j], low_part[j]);
  }
  const float decay = load_floats(factors + offsetof(Factors, decay)).x;
  const int row = static_cast<int>(lane % 16);
  const int unit = static_cast<int>(lane / 16);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Sums update;
    clear(update);
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      Operand b[kBlocks];
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        load_transposed(b[m],
                        key_image + static_cast<uint32_t>(j * kBlock * kRowBytes +
                                                          unit_at(row, 8 * half + 2 * m + unit)));
      }
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        mma_16816(update[2 * m], high_part[j], b[m][0], b[m][1]);
        mma_16816(update[2 * m + 1], high_part[j], b[m][2], b[m][3]);
      }
#pragma unroll
      for (int m = 0; m < kBlocks; ++m) {
        mma_16816(update[2 * m], low_part[j], b[m][0], b[m][1]);
        mma_16816(update[2 * m + 1], low_part[j], b[m][2], b[m][3]);
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      float(&S)[4] = state.S[8 * half + n];
#pragma unroll
      for (int i = 0; i < 4; ++i) S[i] = fmaf(update[n][i], kUnscale, decay * S[i]);
    }
  }
}

/// A chunk: v in `values` becomes o.
template <bool kFull>
__device__ __forceinline__ void scan_chunk(ScanState& state, uint32_t stage, Values& values) {
  const unsigned lane = threadIdx.x % kWarp;
  const uint32_t head_image = stage + kKeyImageBytes;
  const uint32_t factors = head_image + kFactorsAt;
  Sums errors, outputs, solved;
  read_state<kFull>(state, stage, errors, outputs);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const uint32_t at = factors + (n * 8 + lane % 4 * 2) * sizeof(float);
    const float2 key = load_floats(at + offsetof(Factors, key));
    const float2 query = load_floats(at + offsetof(Factors, query));
    const uint32_t v0 = values.words[0][n];
    const uint32_t v1 = values.words[1][n];
    errors[n][0] = fmaf(-key.x, errors[n][0], low_bf16(v0));
    errors[n][1] = fmaf(-key.y, errors[n][1], high_bf16(v0));
    errors[n][2] = fmaf(-key.x, errors[n][2], low_bf16(v1));
    errors[n][3] = fmaf(-key.y, errors[n][3], high_bf16(v1));
    outputs[n][0] *= query.x, outputs[n][1] *= query.y;
    outputs[n][2] *= query.x, outputs[n][3] *= query.y;
  }
  clear(solved);
  add_triangle<true>(solved, errors, head_image);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) solved[n][i] *= kUnscale;
  }
  add_triangle<kFull>(outputs, solved, head_image + kTriangleBytes);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    values.words[0][n] = narrow_pair(outputs[n][0] * kUnscale, outputs[n][1] * kUnscale);
    values.words[1][n] = narrow_pair(outputs[n][2] * kUnscale, outputs[n][3] * kUnscale);
  }
  advance_state(state, solved, stage, factors);
}

/// Images of a block's chunks on their way into shared memory. One thread.
struct Feed {
  uint32_t stages, barriers;
  __device__ __forceinline__ void send(const Images& images, int chunk, int key_head,
                                       int head) const {
    const uint32_t slot = static_cast<uint32_t>(chunk % kStages);
    const uint32_t to = stages + slot * kStageBytes;
    const uint32_t barrier = barriers + slot * sizeof(uint64_t);
    barrier_expect(barrier, kStageBytes);
    load_bulk(to, images.key_image(chunk, key_head), kKeyImageBytes, barrier);
    load_bulk(to + kKeyImageBytes, images.head_image(chunk, head), kHeadImageBytes, barrier);
  }
};

/// Grid (kSlices, num_v_heads).
template <bool kFull>
__global__ void __launch_bounds__(kScanThreads, 1)
    scan_kernel(Images images, Segment segment, RecurrentLayerView state) {
  extern __shared__ __align__(128) uint8_t memory[];
  const Feed feed = {shared_address(memory), shared_address(memory + kStages * kStageBytes)};
  const int head = static_cast<int>(blockIdx.y);
  const int key_head = head * images.num_k_heads / images.num_v_heads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int column = (static_cast<int>(blockIdx.x) * kScanWarps + warp) * kColumnsOfWarp;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) barrier_init(feed.barriers + i * sizeof(uint64_t), 1);
    barrier_init_fence();
    for (int i = 0; i < min(kStages, segment.num_chunks); ++i) feed.send(images, i, key_head, head);
  }
  const Run& run = segment.run;
  const int64_t head_at = static_cast<int64_t>(head) * kHeadDim * kHeadDim;
  float* own = state.data + run.slot * state.slot_stride + head_at;
  ScanState S;
  S.load(own, column);
  const int kept = run.checkpoint_slot == kNoSlot
                       ? -1
                       : run.num_rows / kRows - segment.first_chunk -
                             1;  // the chunk behind which the checkpoint is taken
  const int64_t values_at = (column + lane / 4) * kRows * 2 + lane % 4 * 32;
  __syncthreads();
#pragma unroll 1
  for (int chunk = 0; chunk < segment.num_chunks; ++chunk) {
    uint8_t* const image = images.value_image(chunk, head) + values_at;
    const uint32_t slot = static_cast<uint32_t>(chunk % kStages);
    Values values;
    values.load(image);
    barrier_wait(feed.barriers + slot * sizeof(uint64_t), chunk / kStages % 2);
    scan_chunk<kFull>(S, feed.stages + slot * kStageBytes, values);
    values.store(image);
    if (chunk == kept) {
      S.store(state.data + run.checkpoint_slot * state.slot_stride + head_at, column);
    }
    __syncthreads();
    if (threadIdx.x == 0 && chunk + kStages < segment.num_chunks) {
      feed.send(images, chunk + kStages, key_head, head);
    }
  }
  S.store(own, column);
}

}  // namespace sluice::cuda::gdn_prefill
