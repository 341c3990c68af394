#pragma once
// The two triangles of a chunk and value head, in blocks of 16 x 16:
//
//   A = -(beta k k^T) o D below the diagonal, T = (I - A)^-1 diag(beta);   B = (q k^T) o D on and below it;   D_ij = exp(G_i - G_j)
//
// k k^T and q k^T come as sums of m16n8k16, once for a key head, and stay in registers: k k^T above the diagonal (it is symmetric, and A is wanted as a B operand: m rows
// down, j across), q k^T below it. T by block rows, each for itself: T_ii by substitution, then T_ij = (sum over m in (j, i] of T_im A_mj) T_jj. What a lane has of a
// block of sums is what it needs of the next product's A operand, and what the image wants of it.
//
// Numbers: blocks enter products as two f16 (times 2^10), sums are fp32; |T| <= 1, |A| <= 1 and |T (I - A_jj)| <= 17.

#include "ops/cuda/gdn_prefill_gates.cuh"
#include "ops/cuda/mma.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kDiagonalPitch = kBlock + 4;
constexpr int kBelowBlocks = kBlocks * (kBlocks - 1) / 2;  // blocks below the diagonal ones

/// Of a value head.
struct Triangle {
  uint4 below[kBelowBlocks][2]
             [kWarp];  // A_mj 2^10 at m (m - 1) / 2 + j: B operands, high and low parts
  float diagonal[kBlocks][kBlock * kDiagonalPitch];  // A_jj [column][row], then T_jj
};
__device__ __forceinline__ int below_block(int m, int j) {
  return m * (m - 1) / 2 + j;
}

/// A block's sums: two m16n8 tiles.
using BlockSums = float[8];

/// Blocks of a triangle that a warp of four has: number, number + 4, number + 8.
constexpr int kWarpBlocks = (kTriangleBlocks + 3) / 4;
struct BlockPlace {
  int i, j;
};
__device__ __forceinline__ BlockPlace block_place(int number) {
  const int i = number >= 6 ? 3 : number >= 3 ? 2 : number >= 1 ? 1 : 0;
  return {i, number - i * (i + 1) / 2};
}

/// A row of lanes' share of a block, in the order of a B operand's registers: (g, 2t), (g, 2t + 8), (g + 8, 2t), (g + 8, 2t + 8), each with its right neighbour.
struct BlockShare {
  float2 at[4];
};
__device__ __forceinline__ void store_share(const BlockShare& share, uint4* to) {
  SplitPair p[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = split(share.at[i].x, share.at[i].y);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  to[lane] = make_uint4(p[0].high, p[1].high, p[2].high, p[3].high);
  to[kWarp + lane] = make_uint4(p[0].low, p[1].low, p[2].low, p[3].low);
}

/// Into block (i, j) of a triangle in the image.
__device__ __forceinline__ void store_block(const BlockShare& share, int i, int j,
                                            uint8_t* triangle) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  auto* to = reinterpret_cast<uint32_t*>(triangle + triangle_block(i, j)) + lane;
#pragma unroll
  for (int core = 0; core < 4; ++core) {
    const SplitPair p = split(share.at[core].x, share.at[core].y);
    to[core * kWarp] = p.high;
    to[core * kWarp + kTrianglePartBytes / 4] = p.low;
  }
}

__device__ __forceinline__ void clear(float (&sums)[8]) {
#pragma unroll
  for (float& x : sums) x = 0.0f;
}

/// sums = block `of_rows` of k (which = 0) or q (1) times block `of_columns` of k (or q); `vectors`: a key image, 128-byte aligned.
__device__ __forceinline__ void multiply_vectors(uint32_t vectors, int which, int of_rows,
                                                 int of_columns, BlockSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint32_t a_first = vectors + static_cast<uint32_t>(vector_at(
                                         which, place_of(of_rows * kBlock) + lane % 16, lane / 16));
  const uint32_t b_first =
      vectors + static_cast<uint32_t>(vector_at(
                    0, place_of(of_columns * kBlock) + lane / 16 * 8 + lane % 8, lane / 8 % 2));
  clear(sums);
#pragma unroll
  for (uint32_t s = 0; s < kHeadDim / 16; ++s) {
    const uint32_t units = s % 4 * 32;  // flipped in, as the swizzle flips
    const uint32_t tile = s / 4 * 2 * kTileBytes;
    Operand a, b;
    load_matrices(a, (a_first ^ units) + tile);
    load_matrices(b, (b_first ^ units) + tile);
    mma_16816(sums, a, b[0], b[1]);
    mma_16816(sums + 4, a, b[2], b[3]);
  }
}

/// sums times a factor by row and one by column, those of the lane's blocks.
__device__ __forceinline__ void scale_sums(BlockSums& sums, const float* of_rows,
                                           const float* of_columns, float factor) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float f[2] = {of_rows[lane / 4] * factor, of_rows[lane / 4 + 8] * factor};
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float2 c = *reinterpret_cast<const float2*>(of_columns + 8 * n + lane % 4 * 2);
    sums[4 * n] *= f[0] * c.x, sums[4 * n + 1] *= f[0] * c.y;
    sums[4 * n + 2] *= f[1] * c.x, sums[4 * n + 3] *= f[1] * c.y;
  }
}

/// Two columns' G.
__device__ __forceinline__ float4 load_pair_of(const float2* G) {
  return *reinterpret_cast<const float4*>(G);
}

/// A's block (i, j) of a head from the normalised k k^T of rows j and columns i. One warp.
__device__ __forceinline__ void form_block(const BlockSums& keys, const Gates& gates,
                                           BlockPlace place, Triangle& triangle) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = lane / 4;  // of block j, and 8 behind it: a column of A
  const float2* G_j = gates.G + place.j * kBlock + own;
  const float2 G[2] = {G_j[0], G_j[8]};
  const bool is_diagonal = place.i == place.j;
  BlockShare share;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int local = 8 * n + lane % 4 * 2;
    const int row = place.i * kBlock + local;  // of A
    const float4 G_rows = load_pair_of(gates.G + row);
    const float2 beta = *reinterpret_cast<const float2*>(gates.beta + row);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* sum = keys + 4 * n + 2 * i;
      float2& value = share.at[2 * i + n];
      value.x = -beta.x * sum[0] * decay_between(G[i], make_float2(G_rows.x, G_rows.y));
      value.y = -beta.y * sum[1] * decay_between(G[i], make_float2(G_rows.z, G_rows.w));
    }
  }
  if (is_diagonal) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int local = 8 * n + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = own + 8 * i;
        const float2 value = share.at[2 * i + n];
        *reinterpret_cast<float2*>(triangle.diagonal[place.j] + column * kDiagonalPitch + local) =
            make_float2(local > column ? value.x : 0.0f, local + 1 > column ? value.y : 0.0f);
      }
    }
    return;
  }
#pragma unroll
  for (float2& x : share.at) x = make_float2(x.x * kTriangleScale, x.y * kTriangleScale);
  store_share(share, triangle.below[below_block(place.i, place.j)][0]);
}

/// B's block (i, j) of a head from q k^T with all other factors, into the image. One warp.
__device__ __forceinline__ void store_outputs_block(const BlockSums& queries, const Gates& gates,
                                                    BlockPlace place, uint8_t* image) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = place.i * kBlock + lane / 4;
  const float2 G[2] = {gates.G[own], gates.G[own + 8]};
  BlockShare share;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int column = place.j * kBlock + 8 * n + lane % 4 * 2;
    const float4 G_columns = load_pair_of(gates.G + column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = own + 8 * i;
      const float* sum = queries + 4 * n + 2 * i;
      float2& value = share.at[2 * i + n];
      value.x = column <= row ? sum[0] * decay_between(make_float2(G_columns.x, G_columns.y), G[i])
                              : 0.0f;
      value.y = column + 1 <= row
                    ? sum[1] * decay_between(make_float2(G_columns.z, G_columns.w), G[i])
                    : 0.0f;
    }
  }
  store_block(share, place.i, place.j, image);
}

/// T_jj from A_jj in its place, [column][row]: 16 lanes, one a column; x_i += A_im x_m for m = 0, 1, ...
__device__ __forceinline__ void invert_diagonal(float* block, int column) {
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
  for (int m = 0; m < kBlock - 1; ++m) {
#pragma unroll
    for (int i = (m + 1) / 4 * 4; i < kBlock; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(block + m * kDiagonalPitch + i);
      if (i > m) x[i] = fmaf(a.x, x[m], x[i]);
      if (i + 1 > m) x[i + 1] = fmaf(a.y, x[m], x[i + 1]);
      if (i + 2 > m) x[i + 2] = fmaf(a.z, x[m], x[i + 2]);
      if (i + 3 > m) x[i + 3] = fmaf(a.w, x[m], x[i + 3]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kBlock; i += 4) {
    *reinterpret_cast<float4*>(block + column * kDiagonalPitch + i) =
        make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
  }
}

/// sums of 16 x 16 += (high + low) (block's high + low).
struct Pair {
  Operand high, low;
};
__device__ __forceinline__ void add_product(float (&sums)[8], const Pair& a, const Pair& b) {
  mma_16816(sums, a.high, b.high[0], b.high[1]);
  mma_16816(sums + 4, a.high, b.high[2], b.high[3]);
  mma_16816(sums, a.low, b.high[0], b.high[1]);
  mma_16816(sums + 4, a.low, b.high[2], b.high[3]);
  mma_16816(sums, a.high, b.low[0], b.low[1]);
  mma_16816(sums + 4, a.high, b.low[2], b.low[3]);
}
__device__ __forceinline__ void load_operand(Operand& to, const uint4& from) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

/// A block of T 2^10 as sums, into the image with beta in its columns.
__device__ __forceinline__ void store_solution(const float (&t)[8], const float* beta, int row,
                                               int j, uint8_t* image) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  BlockShare share;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const float2 b = *reinterpret_cast<const float2*>(beta + j * kBlock + 8 * n + column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      share.at[2 * i + n] = make_float2(t[4 * n + 2 * i] * b.x, t[4 * n + 2 * i + 1] * b.y);
    }
  }
  store_block(share, row, j, image);
}

/// Block row kRow of T. One warp.
template <int kRow>
__device__ __forceinline__ void solve_row(const Triangle& triangle, const float* beta,
                                          uint8_t* image) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = lane / 4;
  const int column = lane % 4 * 2;
  Pair row[kBlocks];  // T_im 2^10
  float t[8];
  const float* diagonal = triangle.diagonal[kRow];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int r = own + i / 2 % 2 * 8;
    const int c = column + i % 2 + i / 4 * 8;
    t[i] = diagonal[c * kDiagonalPitch + r] * kTriangleScale;
  }
#pragma unroll
  for (int j = kRow; j >= 0; --j) {
    if (j < kRow) {
      asm volatile("" ::: "memory");  // loads of later blocks stay behind: registers are short
      float sums[8];
      clear(sums);
#pragma unroll
      for (int m = kRow; m > j; --m) {
        const auto& a = triangle.below[below_block(m, j)];
        Pair b;
        load_operand(b.high, a[0][lane]);
        load_operand(b.low, a[1][lane]);
        add_product(sums, row[m], b);
      }
#pragma unroll
      for (float& x : sums) x *= kUnscale;
      asm volatile("" ::: "memory");
      Pair left, right;
      split_tiles(sums, left.high, left.low);
      // T_jj as a B operand: k down, n across.
      const float* inverse = triangle.diagonal[j];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = *reinterpret_cast<const float2*>(
            inverse + (own + i / 2 * 8) * kDiagonalPitch + column + i % 2 * 8);
        const SplitPair part = split(x.x * kTriangleScale, x.y * kTriangleScale);
        right.high[i] = part.high, right.low[i] = part.low;
      }
      clear(t);
      add_product(t, left, right);
#pragma unroll
      for (float& x : t) x *= kUnscale;
    }
    store_solution(t, beta, kRow, j, image);
    if (j > 0) split_tiles(t, row[j].high, row[j].low);
  }
}

/// Block row `row` of T. A call of its own, so that it has the registers to itself.
__device__ __noinline__ void solve_block_row(int row, const Triangle& triangle, const float* beta,
                                             uint8_t* image) {
  switch (row) {
    case 0:
      return solve_row<0>(triangle, beta, image);
    case 1:
      return solve_row<1>(triangle, beta, image);
    case 2:
      return solve_row<2>(triangle, beta, image);
    default:
      return solve_row<3>(triangle, beta, image);
  }
}

}  // namespace sluice::cuda::gdn_prefill
