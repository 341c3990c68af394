#pragma once
// What gdn_prefill's kernels hand to one another: images of shared memory, a chunk and head behind the other.
//
// Key image, of a chunk and key head: k then q as f16 c 2^p with the row's own p (unit_power), each as two tiles of 64 columns.
// Head image, of a chunk and value head: T then B (triangles, below), then Factors.
// Value image, of a chunk and value head: v and later o as bf16, two tiles of 64 columns.
//
// Tile: 64 rows (of the chunk) of 128 bytes, 128-byte swizzle: unit u of 16 bytes of row r lies at unit u ^ (r % 8).
// Triangle: the 10 blocks of 16 x 16 on and below the diagonal, block (i, j) at i (i + 1) / 2 + j, each as two f16 matrices, high then low part. A matrix lies as the B
// operand of m16n8k16 (n = row of the triangle, k = column): lane 4 g + t has rows g and g + 8, columns 2 t, 2 t + 1, 2 t + 8, 2 t + 9.

#include <cstdint>

#include "ops/cuda/gdn_core_block.cuh"
#include "ops/cuda/gdn_prefill.h"
#include "ops/cuda/gdn_prefill_instr.cuh"

namespace sluice::cuda::gdn_prefill {

using gdn::kAllLanes;
using gdn::kHeadDim;

constexpr int kRows = static_cast<int>(kGdnChunk);
constexpr int kBlock = 16;
constexpr int kBlocks = kRows / kBlock;  // of a triangle's side
constexpr int kTriangleBlocks = kBlocks * (kBlocks + 1) / 2;
constexpr int kMatrixBytes = kBlock * kBlock * 2;
constexpr int kTriangleBytes = kTriangleBlocks * 2 * kMatrixBytes;
constexpr int kTileColumns = 64;
constexpr int kTileRowBytes = kTileColumns * 2;
constexpr int kTileBytes = kRows * kTileRowBytes;
constexpr int kTiles = kHeadDim / kTileColumns;     // of 128 columns
constexpr int kVectorsBytes = kTiles * kTileBytes;  // k or q
constexpr int kKeyImageBytes = 2 * kVectorsBytes;
constexpr int kValueImageBytes = kTiles * kTileBytes;

/// Powers of two that keep f16 pairs away from its subnormals.
constexpr float kTriangleScale = 1024.0f;  // on T and B, and so on what they are multiplied by
constexpr float kUnscale = 1.0f / 1024.0f;

/// By row, where G is the inclusive sum of g within the chunk, and |k|, |q| are the norms with the images' powers of two.
struct Factors {
  float key[kRows];    // exp(G) / |k|
  float query[kRows];  // exp(G) / |q| / sqrt(128) kTriangleScale
  float tail[kRows];   // exp(G_last - G) / |k|
  float decay;         // exp(G_last)
  float unused[31];
};
constexpr int kFactorsAt = 2 * kTriangleBytes;
constexpr int kHeadImageBytes = kFactorsAt + static_cast<int>(sizeof(Factors));
static_assert(kHeadImageBytes % 128 == 0);

/// Byte of unit `unit` of row `row` in two tiles.
__host__ __device__ constexpr int unit_at(int row, int unit) {
  return unit / 8 * kTileBytes + row * kTileRowBytes + (unit % 8 ^ row % 8) * 16;
}
__host__ __device__ constexpr int triangle_block(int i, int j) {
  return i * (i + 1) / 2 + j;
}

/// A launch's images.
struct Images {
  uint8_t *key, *head, *value;
  int num_k_heads, num_v_heads;

  __host__ __device__ uint8_t* key_image(int image, int key_head) const {
    return key + (static_cast<int64_t>(image) * num_k_heads + key_head) * kKeyImageBytes;
  }
  __host__ __device__ uint8_t* head_image(int image, int head_idx) const {
    return head + (static_cast<int64_t>(image) * num_v_heads + head_idx) * kHeadImageBytes;
  }
  __host__ __device__ uint8_t* value_image(int image, int head_idx) const {
    return value + (static_cast<int64_t>(image) * num_v_heads + head_idx) * kValueImageBytes;
  }
};

/// RowRun, as the kernels take it.
struct Run {
  int first_row, num_rows, position, slot, checkpoint_slot;
};

/// Chunks [first_chunk, first_chunk + num_chunks) of a run, at images [first_image, + num_chunks).
struct Part {
  Run run;
  int first_chunk, num_chunks, first_image;
};
/// What a launch works on: parts of different runs.
constexpr int kPartsMax = 32;
struct Batch {
  int num_parts, num_images;
  Part parts[kPartsMax];
};

/// The chunk of an image.
struct Chunk {
  const Run* run;
  int first, count;  // of its rows in the run; rows that exist
  bool is_last;      // of the run
  int64_t step_row;  // of its first row
};
__device__ __forceinline__ Chunk chunk_of(const Batch& batch, int image) {
  int part = 0;
  while (part + 1 < batch.num_parts && image >= batch.parts[part + 1].first_image) ++part;
  const Part& in = batch.parts[part];
  Chunk chunk;
  chunk.run = &in.run;
  chunk.first = (in.first_chunk + image - in.first_image) * kRows;
  chunk.count = min(kRows, in.run.num_rows - chunk.first);
  chunk.is_last = chunk.first + kRows >= in.run.num_rows;
  chunk.step_row = in.run.first_row + chunk.first;
  return chunk;
}

/// x0, x1 as two f16 each, first in the low half: x is high + low to 22 bits.
struct SplitPair {
  uint32_t high, low;
};
__device__ __forceinline__ SplitPair split(float x0, float x1) {
  const uint32_t pair = f16_pair(x0, x1);
  const float2 rounded = widen_f16_pair(pair);
  return {pair, f16_pair(x0 - rounded.x, x1 - rounded.y)};
}

using Operand = uint32_t[4];
/// Two tiles of m16n8 sums as the A operand of 16 of their n: sums[0 .. 3] and sums[4 .. 7].
__device__ __forceinline__ void split_tiles(const float* sums, Operand& high, Operand& low) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const SplitPair part = split(sums[2 * i], sums[2 * i + 1]);
    high[i] = part.high, low[i] = part.low;
  }
}

}  // namespace sluice::cuda::gdn_prefill
