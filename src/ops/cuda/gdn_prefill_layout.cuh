#pragma once
// What gdn_prefill's kernels hand to one another: images of shared memory, a chunk and head behind the other.
//
// Key image, of a chunk and key head: k and q as f16 c 2^p with the row's own p (unit_power), in tiles of 64 columns: k's first, q's first, k's second, q's second.
// Head image, of a chunk and value head: T then B (triangles, below), then Factors.
// Value image, of a chunk and value head: v and later o as bf16, two tiles of 64 columns.
//
// k, q, the triangles and the factors have the chunk's rows in blocks of 16, the last block first: row r at place r ^ 48. So a triangle's block column, from its diagonal down,
// is the beginning of what it is multiplied into.
//
// Tile: 64 rows (of the chunk) of 128 bytes, 128-byte swizzle: unit u of 16 bytes of row r lies at unit u ^ (r % 8).
// Triangle: f16 of high parts, then of low parts, each by block columns j: the blocks (3, j) .. (j, j), which is the unswizzled B operand of a wgmma (n = row of the triangle,
// k = column). Eight rows of eight columns are 128 bytes; the right eight columns lie behind the left ones, the next eight rows behind both.

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
constexpr int kTrianglePartBytes = kTriangleBlocks * kMatrixBytes;
constexpr int kTriangleBytes = 2 * kTrianglePartBytes;
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

/// By place, where G is the inclusive sum of g within the chunk, and |k|, |q| are the norms with the images' powers of two.
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
/// The same in a key image, of k (which = 0) or q (1).
__host__ __device__ constexpr int vector_at(int which, int place, int unit) {
  return (unit / 8 * 2 + which) * kTileBytes + unit_at(place, unit % 8);
}
/// Where a row of the chunk lies in k, q, triangles and factors.
__host__ __device__ constexpr int place_of(int row) {
  return row ^ (kRows - kBlock);
}
/// Byte of block (i, j) in a triangle's high or low parts.
__host__ __device__ constexpr int triangle_block(int i, int j) {
  return (j * kBlocks - j * (j - 1) / 2 + kBlocks - 1 - i) * kMatrixBytes;
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

struct Chunk {
  const Run* run;
  int first, count;  // of its rows in the run; rows that exist
  bool is_last;      // of the run
  int64_t step_row;  // of its first row
};
/// Number `number` of a part, or that of an image.
__device__ __forceinline__ Chunk chunk_of(const Part& in, int number) {
  Chunk chunk;
  chunk.run = &in.run;
  chunk.first = (in.first_chunk + number) * kRows;
  chunk.count = min(kRows, in.run.num_rows - chunk.first);
  chunk.is_last = chunk.first + kRows >= in.run.num_rows;
  chunk.step_row = in.run.first_row + chunk.first;
  return chunk;
}
__device__ __forceinline__ Chunk chunk_of(const Batch& batch, int image) {
  int part = 0;
  while (part + 1 < batch.num_parts && image >= batch.parts[part + 1].first_image) ++part;
  return chunk_of(batch.parts[part], image - batch.parts[part].first_image);
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
