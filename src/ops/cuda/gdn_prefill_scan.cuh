#pragma once
// The scan over a run's chunks: a block is a warpgroup and has 64 value columns of a head, a warp 16 of them with all 128 rows of the state, in registers. Columns of v
// never meet, so warps share nothing but the images, which come by bulk copies, kStages chunks deep.
//
// All products are taken transposed: columns of v are the rows of A and of the sums, rows of the chunk (or of k) the n side. A sum's registers are then the next
// product's A operand, and what a lane writes of o is what it has read of v:
//
//   E^T = v^T - (S^T k^T) diag(exp(G))          X^T = E^T T^T, T with beta in its columns
//   o^T = (S^T q^T) diag(exp(G)) + X^T B^T      S^T = exp(G_last) S^T + (X^T diag(exp(G_last - G))) k
//
// Products with k and q are wgmma, those with triangles mma.sync, which leaves out the blocks that are zero. Of the state, the second half of k runs behind the first, so
// that o is finished beside the one and halves are taken apart beside the other.
//
// A row's sums over rows end at its own: behind it T and B are zero, and what meets a zero changes no bit. The state's sums over a chunk begin at zero and are added to
// the decayed state by one fused multiply-add, so that the instruction's truncation acts on them alone.

#include "ops/cuda/gdn_prefill_layout.cuh"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/tma.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kScanThreads = 4 * kWarp;
constexpr int kColumnsOfWarp = 16;
constexpr int kSlices = kTiles;  // blocks of a head
constexpr int kStages = 3;
constexpr int kValuesAt = kKeyImageBytes;  // of a stage
constexpr int kHeadAt = kValuesAt + kTileBytes;
constexpr int kStageBytes = (kHeadAt + kHeadImageBytes + 1023) / 1024 * 1024;
constexpr int kOutputsAt = kStages * kStageBytes;  // two tiles of o
constexpr int kBarriersAt = kOutputsAt + 2 * kTileBytes;
constexpr int kScanSharedBytes = kBarriersAt + kStages * static_cast<int>(sizeof(uint64_t));
constexpr int kRowTiles = kRows / 8;           // n tiles of 8 rows
constexpr int kSteps = kTileColumns / kBlock;  // k16 steps of a half of k
constexpr int kHalves = kHeadDim / kTileColumns;

/// Of 16 columns of v: sums[4 n + i] of m16n8 tile n.
using Sums = float[4 * kRowTiles];

/// Four k16 steps of A, high and low parts.
struct Operands {
  Operand high[kSteps], low[kSteps];

  __device__ __forceinline__ void set(const Sums& from) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) split_tiles(from + 8 * s, high[s], low[s]);
  }
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) pin(high[s]), pin(low[s]);
  }
};

/// sums (+)= part times 64 n of a tile, a k16 step; begins where `begins`.
template <bool kTransposed>
__device__ __forceinline__ void add_step(Sums& sums, const Operand& part, uint32_t tile, int step,
                                         bool begins) {
  const uint32_t at = tile + static_cast<uint32_t>(step) * (kTransposed ? kRowsStep : kTileStep);
  if (begins) {
    multiply_tile<false, kTransposed>(sums, part, at);
  } else {
    multiply_tile<true, kTransposed>(sums, part, at);
  }
}

/// A warp's [16 columns of v, 128 of k], in halves of k, and what of it enters products.
struct ScanState {
  Sums S[kHalves];
  Operands parts[kHalves];

  /// Element (k, column) of a head's state in memory, and of this lane.
  static __device__ __forceinline__ int place(int half, int i, int column) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return (half * kTileColumns + i / 4 * 8 + 2 * (lane % 4) + i % 2) * kHeadDim + column +
           lane / 4 + i / 2 % 2 * 8;
  }
  __device__ __forceinline__ void load(const float* from, int column) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) S[h][i] = load_state(from + place(h, i, column));
    }
  }
  __device__ __forceinline__ void take_apart() {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) parts[h].set(S[h]);
  }
  __device__ __forceinline__ void store(float* to, int column) const {
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
#pragma unroll
      for (int i = 0; i < 4 * kRowTiles; ++i) to[place(h, i, column)] = S[h][i];
    }
  }
  __device__ __forceinline__ void advance(int half, float decay, const Sums& update) {
#pragma unroll
    for (int i = 0; i < 4 * kRowTiles; ++i) {
      S[half][i] = fmaf(update[i], kUnscale, decay * S[half][i]);
    }
    parts[half].set(S[half]);
  }
};

/// Begins S^T k^T, in high and low parts apart, and S^T q^T, in two groups: what follows each other in a sum waits for it, so that three sums take turns.
__device__ __forceinline__ void read_state(const ScanState& state, uint32_t keys, Sums& errors,
                                           Sums& errors_low, Sums& outputs) {
  constexpr uint32_t kTile = kTileBytes >> 4;
  wgmma_fence();
#pragma unroll
  for (uint32_t h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const bool begins = h == 0 && s == 0;
      add_step<false>(errors, state.parts[h].high[s], keys + h * kTile, s, begins);
      add_step<false>(errors_low, state.parts[h].low[s], keys + h * kTile, s, begins);
      add_step<false>(outputs, state.parts[h].high[s], keys + (kTiles + h) * kTile, s, begins);
    }
  }
  wgmma_commit();
#pragma unroll
  for (uint32_t h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      add_step<false>(outputs, state.parts[h].low[s], keys + (kTiles + h) * kTile, s, false);
    }
  }
  wgmma_commit();
}

/// sums += x triangle^T.
__device__ __forceinline__ void add_triangle(Sums& sums, const Sums& x, uint32_t triangle) {
  const uint32_t mine = triangle + threadIdx.x % kWarp * sizeof(Operand);
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
    Operand high, low, b[kBlocks], rest[kBlocks];
    split_tiles(x + 8 * j, high, low);
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      const uint32_t at = mine + static_cast<uint32_t>(triangle_block(i, j)) * 2 * kMatrixBytes;
      load_words(b[i], at);
      load_words(rest[i], at + kMatrixBytes);
    }
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      mma_16816(sums + 8 * i, high, b[i][0], b[i][1]);
      mma_16816(sums + 8 * i + 4, high, b[i][2], b[i][3]);
    }
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      mma_16816(sums + 8 * i, low, b[i][0], b[i][1]);
      mma_16816(sums + 8 * i + 4, low, b[i][2], b[i][3]);
    }
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      mma_16816(sums + 8 * i, high, rest[i][0], rest[i][1]);
      mma_16816(sums + 8 * i + 4, high, rest[i][2], rest[i][3]);
    }
  }
}

/// A lane's row of matrices of a warp's 16 columns in a tile of values: two n tiles of rows, times two units.
__device__ __forceinline__ uint32_t values_row(int pair) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  return static_cast<uint32_t>(
      unit_at(pair * kBlock + lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2));
}

/// errors = v - exp(G) k S from errors + low = the unnormalised k S.
__device__ __forceinline__ void subtract_from_values(Sums& errors, const Sums& low, uint32_t values,
                                                     uint32_t factors) {
  const uint32_t mine = factors + threadIdx.x % 4 * 2 * sizeof(float);
#pragma unroll
  for (int pair = 0; pair < kBlocks; ++pair) {
    Operand v;
    load_transposed(v, values + values_row(pair));
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float2 key = load_floats(mine + offsetof(Factors, key) + (2 * pair + n) * 32);
      float* e = errors + 8 * pair + 4 * n;
      const float* l = low + 8 * pair + 4 * n;
      e[0] = fmaf(-key.x, e[0] + l[0], low_bf16(v[2 * n]));
      e[1] = fmaf(-key.y, e[1] + l[1], high_bf16(v[2 * n]));
      e[2] = fmaf(-key.x, e[2] + l[2], low_bf16(v[2 * n + 1]));
      e[3] = fmaf(-key.y, e[3] + l[3], high_bf16(v[2 * n + 1]));
    }
  }
}

/// to = from times a factor by row; `factors`: its first.
__device__ __forceinline__ void scale_rows(Sums& to, const Sums& from, uint32_t factors) {
  const uint32_t mine = factors + threadIdx.x % 4 * 2 * sizeof(float);
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    const float2 f = load_floats(mine + n * 32);
    to[4 * n] = from[4 * n] * f.x, to[4 * n + 1] = from[4 * n + 1] * f.y;
    to[4 * n + 2] = from[4 * n + 2] * f.x, to[4 * n + 3] = from[4 * n + 3] * f.y;
  }
}

/// o, rounded, into a tile.
__device__ __forceinline__ void store_outputs(const Sums& outputs, uint32_t tile) {
#pragma unroll
  for (int pair = 0; pair < kBlocks; ++pair) {
    uint32_t o[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* x = outputs + 8 * pair + 2 * i;
      o[i] = narrow_pair(x[0] * kUnscale, x[1] * kUnscale);
    }
    store_transposed(tile + values_row(pair), o[0], o[1], o[2], o[3]);
  }
}

/// A chunk: its o into the tile `to`, the state moved on.
__device__ __forceinline__ void scan_chunk(ScanState& state, uint32_t stage, uint32_t to) {
  const uint32_t triangles = stage + kHeadAt;
  const uint32_t factors = triangles + kFactorsAt;
  const uint32_t keys = tile_at(stage);
  constexpr uint32_t kTile = kTileBytes >> 4;
  Sums errors, errors_low, outputs, solved;
  read_state(state, keys, errors, errors_low, outputs);
#pragma unroll
  for (float& x : solved) x = 0.0f;
  wgmma_wait<1>();
  pin(errors);
  pin(errors_low);
  subtract_from_values(errors, errors_low, stage + kValuesAt, factors);
  add_triangle(solved, errors, triangles);
  Operands moves;  // X^T diag(exp(G_last - G))
  {
    Sums scaled;
    scale_rows(scaled, solved, factors + offsetof(Factors, tail));
    moves.set(scaled);
  }
  const float decay = load_floats(factors + offsetof(Factors, decay)).x;
  wgmma_wait<0>();
  pin(outputs);
  state.parts[0].hold();
  state.parts[1].hold();
  Sums update;
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    add_step<true>(update, moves.high[s], keys, s, s == 0);
    add_step<true>(update, moves.low[s], keys, s, false);
  }
  wgmma_commit();
  scale_rows(outputs, outputs, factors + offsetof(Factors, query));
#pragma unroll
  for (float& x : solved) x *= kUnscale;
  add_triangle(outputs, solved, triangles + kTriangleBytes);
  store_outputs(outputs, to);
  wgmma_wait<0>();
  pin(update);
  Sums second, second_low;
  wgmma_fence();
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    add_step<true>(second, moves.high[s], keys + kTile, s, s == 0);
    add_step<true>(second_low, moves.low[s], keys + kTile, s, s == 0);
  }
  wgmma_commit();
  state.advance(0, decay, update);
  wgmma_wait<0>();
  pin(second);
  pin(second_low);
  moves.hold();
#pragma unroll
  for (int i = 0; i < 4 * kRowTiles; ++i) second[i] += second_low[i];
  state.advance(1, decay, second);
}

/// Images of a block's chunks on their way into shared memory. One thread.
struct Feed {
  uint32_t stages, barriers;
  __device__ __forceinline__ void send(const Images& images, int image, int slot, int key_head,
                                       int head, int slice) const {
    const uint32_t to = stages + static_cast<uint32_t>(slot) * kStageBytes;
    const uint32_t barrier = barriers + static_cast<uint32_t>(slot) * sizeof(uint64_t);
    barrier_expect(barrier, kKeyImageBytes + kTileBytes + kHeadImageBytes);
    load_bulk(to, images.key_image(image, key_head), kKeyImageBytes, barrier);
    load_bulk(to + kValuesAt, images.value_image(image, head) + slice * kTileBytes, kTileBytes,
              barrier);
    load_bulk(to + kHeadAt, images.head_image(image, head), kHeadImageBytes, barrier);
  }
};

/// Grid (kSlices, num_v_heads, parts).
__global__ void __launch_bounds__(kScanThreads, 1)
    scan_kernel(Images images, const __grid_constant__ Batch batch, RecurrentLayerView state) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const Feed feed = {shared_address(memory), shared_address(memory + kBarriersAt)};
  const uint32_t outputs = shared_address(memory + kOutputsAt);
  const Part& part = batch.parts[blockIdx.z];
  const int head = static_cast<int>(blockIdx.y);
  const int slice = static_cast<int>(blockIdx.x);
  const int key_head = head * images.num_k_heads / images.num_v_heads;
  const int column = slice * kTileColumns + static_cast<int>(threadIdx.x) / kWarp * kColumnsOfWarp;
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kStages; ++i) barrier_init(feed.barriers + i * sizeof(uint64_t), 1);
    barrier_init_fence();
  }
  const int64_t head_at = static_cast<int64_t>(head) * kHeadDim * kHeadDim;
  float* own = state.data + part.run.slot * state.slot_stride + head_at;
  ScanState S;
  S.load(own, column);  // written by no kernel beside this one's predecessor
  pdl_wait();
  pdl_launch();
  if (threadIdx.x == 0) {
    for (int i = 0; i < min(kStages, part.num_chunks); ++i) {
      feed.send(images, part.first_image + i, i, key_head, head, slice);
    }
  }
  S.take_apart();
  const int kept = part.run.checkpoint_slot == kNoSlot
                       ? -1
                       : part.run.num_rows / kRows - part.first_chunk -
                             1;  // the chunk behind which the checkpoint is taken
  __syncthreads();
  RingCursor<kStages> at;
#pragma unroll 1
  for (int chunk = 0; chunk < part.num_chunks; ++chunk) {
    const uint32_t to = outputs + static_cast<uint32_t>(chunk % 2) * kTileBytes;
    barrier_wait(feed.barriers + static_cast<uint32_t>(at.slot) * sizeof(uint64_t), at.parity);
    scan_chunk(S, feed.stages + static_cast<uint32_t>(at.slot) * kStageBytes, to);
    if (chunk == kept) {
      S.store(state.data + part.run.checkpoint_slot * state.slot_stride + head_at, column);
    }
    shared_written();
    if (threadIdx.x == 0) store_bulk_wait();  // the tile that the next chunk writes
    __syncthreads();
    if (threadIdx.x == 0) {
      const int image = part.first_image + chunk;
      store_bulk(images.value_image(image, head) + slice * kTileBytes, to, kTileBytes);
      if (chunk + kStages < part.num_chunks) {
        feed.send(images, image + kStages, at.slot, key_head, head, slice);
      }
    }
    at.advance();
  }
  S.store(own, column);
  if (threadIdx.x == 0) store_bulk_wait();
}

}  // namespace sluice::cuda::gdn_prefill
