#pragma once
// What gdn_prefill's kernels hand to one another: images of shared memory, a chunk and head behind the other.
//
// Key image, of a chunk and key head: k then q as f16 [64 rows][128], c 2^p with the row's own p (unit_exponent); unit u of 16 bytes of row r lies at unit u ^ (r % 8).
// Head image, of a chunk and value head: T then B (triangles, below), then Factors.
// Value image, of a chunk and value head: [128 columns][64 rows] bf16, v and later o, a column's rows in the order of place_of_row.
//
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
constexpr int kRowBytes = kHeadDim * 2;           // of k or q in a key image
constexpr int kVectorsBytes = kRows * kRowBytes;  // k or q
constexpr int kKeyImageBytes = 2 * kVectorsBytes;
constexpr int kValueImageBytes = kHeadDim * kRows * 2;

/// Powers of two that keep f16 pairs away from its subnormals.
constexpr float kTriangleScale = 1024.0f;   // on T and B
constexpr float kTailScale = 1024.0f;       // on Factors::tail
constexpr float kUnscale = 1.0f / 1024.0f;  // undoes either

/// By row, where G is the inclusive sum of g within the chunk, and |k|, |q| are the norms with the images' powers of two.
struct Factors {
  float key[kRows];    // exp(G) / |k|
  float query[kRows];  // exp(G) / |q| / sqrt(128) kTriangleScale
  float tail[kRows];   // exp(G_last - G) / |k| kTailScale
  float decay;         // exp(G_last)
  float unused[31];
};
constexpr int kFactorsAt = 2 * kTriangleBytes;
constexpr int kHeadImageBytes = kFactorsAt + static_cast<int>(sizeof(Factors));
static_assert(kHeadImageBytes % 128 == 0);

/// Where a column's row lies in a value image: lane t of a row of lanes reads its 16 rows 8 n + 2 t + {0, 1} in one go.
__host__ __device__ constexpr int place_of_row(int row) {
  return row / 2 % 4 * 16 + row / 8 * 2 + row % 2;
}
__host__ __device__ constexpr int triangle_block(int i, int j) {
  return i * (i + 1) / 2 + j;
}
/// Byte of unit `unit` (16 bytes) of a row of k or q.
__host__ __device__ constexpr int unit_at(int row, int unit) {
  return row * kRowBytes + (unit ^ row % 8) * 16;
}

/// The segment's images.
struct Images {
  uint8_t *key, *head, *value;
  int num_k_heads, num_v_heads;

  __host__ __device__ uint8_t* key_image(int chunk, int key_head) const {
    return key + (static_cast<int64_t>(chunk) * num_k_heads + key_head) * kKeyImageBytes;
  }
  __host__ __device__ uint8_t* head_image(int chunk, int head_idx) const {
    return head + (static_cast<int64_t>(chunk) * num_v_heads + head_idx) * kHeadImageBytes;
  }
  __host__ __device__ uint8_t* value_image(int chunk, int head_idx) const {
    return value + (static_cast<int64_t>(chunk) * num_v_heads + head_idx) * kValueImageBytes;
  }
};

/// RowRun, as the kernels take it.
struct Run {
  int first_row, num_rows, position, slot, checkpoint_slot;
};

/// Chunks [first_chunk, first_chunk + num_chunks) of a run.
struct Segment {
  Run run;
  int first_chunk, num_chunks;
};

/// x0, x1 as two f16 each, first in the low half: x is high + low to 22 bits.
struct SplitPair {
  uint32_t high, low;
};
__device__ __forceinline__ SplitPair split(float x0, float x1) {
  const uint32_t pair = f16_pair(x0, x1);
  const float2 rounded = widen_f16_pair(pair);
  return {pair, f16_pair(x0 - rounded.x, x1 - rounded.y)};
}

}  // namespace sluice::cuda::gdn_prefill
