#pragma once
// What of a chunk does not depend on the state: a block makes the images (gdn_prefill_layout.cuh) of one chunk of one key head and its kGroup value heads.
//
//   1  gates of the value heads, a warp each: beta, and G in double, kept as two fp32: |G| may be 1,000 where a difference is 1e-3
//   2  conv + SiLU of q and k, a thread two channels of 16 rows; norms, a warp a row; the key image
//   3  k k^T and q k^T, once for the group: a warp 16 rows of one, f16 that are exact, fp32 sums
//   4  conv + SiLU of v into the value images
//   5  A = -(beta k k^T) o D below the diagonal; T = (I - A)^-1, a thread a column: x_i += A_im x_m for m = 0, 1, ...
//   6  T diag(beta) and B = (q k^T) o D as pairs of f16; the factors
//
// Rows behind the run's end are k = q = v = beta = g = 0.

#include "ops/cuda/gdn_prefill_layout.cuh"
#include "ops/cuda/mma.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kFactorThreads = 256;
constexpr int kFactorWarps = kFactorThreads / kWarp;
constexpr int kPairs = kHeadDim / 2;  // of channels, a thread each
constexpr int kRowsOfThread = kRows / (kFactorThreads / kPairs);
constexpr int kHistory = gdn::kHistory;
/// k k^T, A and T lie [column][row]: lanes side by side in rows, columns of whole 16 bytes.
constexpr int kKeysPitch = kRows + 4;
constexpr int kQueriesPitch = kRows + 8;     // q k^T [row][column]
constexpr int kValuesPitch = kRows / 2 + 2;  // words of a column of v
static_assert(kRowsOfThread == kBlock);

template <int kGroup>
struct alignas(128) FactorsShared {
  struct Gate {
    float2 G[kRows];  // high and low part
    float beta[kRows];
  };
  union {
    uint8_t vectors[kKeyImageBytes];              // phases 2, 3
    uint32_t values[kHeadDim * kValuesPitch];     // 4
    float triangles[kGroup][kRows * kKeysPitch];  // 5, 6
  };
  float keys[kRows * kKeysPitch];
  float queries[kRows * kQueriesPitch];
  float inverse[2][kRows];  // of k's and q's norms, with the images' powers of two; q's / sqrt(128)
  Gate gates[kGroup];
};

struct ChunkRows {
  int64_t step_row;  // of the chunk's first
  int first, count;  // in the run; rows that exist
};

__device__ __forceinline__ float2 in_parts(double x) {
  const auto upper = static_cast<float>(x);
  return make_float2(upper, static_cast<float>(x - upper));
}

/// Phase 1, one warp: a lane has rows 2 lane and 2 lane + 1.
template <typename Gate>
__device__ __forceinline__ void make_gates(const GdnPrefill& args, const ChunkRows& rows, int head,
                                           Gate& gate) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float exp_A = expf(args.A_log[head]);
  const float dt_bias = args.dt_bias[head];
  double g[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    float beta = 0.0f;
    g[i] = 0.0;
    if (row < rows.count) {
      const float a = widen(args.a.data[(rows.step_row + row) * args.a.stride + head]);
      const float b = widen(args.b.data[(rows.step_row + row) * args.b.stride + head]);
      g[i] = gdn::log_decay(a, dt_bias, exp_A);
      beta = gdn::beta_of(b);
    }
    gate.beta[row] = beta;
  }
  double sum = g[0] + g[1];
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const double before = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += before;
  }
  const double before = __shfl_up_sync(kAllLanes, sum, 1);
  const double base = lane == 0 ? 0.0 : before;
  gate.G[2 * lane] = in_parts(base + g[0]);
  gate.G[2 * lane + 1] = in_parts(sum);
}

/// Conv and SiLU of two channels of kRowsOfThread rows from row `begin` of the chunk; out[i]: a row's pair.
__device__ __forceinline__ void convolve(const GdnPrefill& args, const Run& run,
                                         const ChunkRows& rows, int channel, int begin,
                                         uint32_t (&out)[kRowsOfThread]) {
  uint32_t x[kHistory + kRowsOfThread];
  const bf16* from = args.qkv.data + rows.step_row * args.qkv.stride + channel;
  const int stride = static_cast<int>(args.qkv.stride);
#pragma unroll
  for (int i = 0; i < kHistory + kRowsOfThread; ++i) {
    const int row = begin + i - kHistory;  // of the chunk
    x[i] = 0u;
    if (i >= kHistory || rows.first + row >= 0) {
      if (row < rows.count) x[i] = gdn::load_pair(from + row * stride);
    } else if (run.position + row >= 0) {
      const int64_t column = (run.position + row) % kConvRingColumns;
      x[i] = gdn::load_pair(args.conv.data + run.slot * args.conv.slot_stride +
                            column * args.conv.num_channels + channel);
    }
  }
  const auto* weights = reinterpret_cast<const float4*>(args.conv_weight) + channel;
  const float4 w[2] = {weights[0], weights[1]};
  const auto finish = [](float c) { return gdn::silu_unbranched(widen(gdn::round_half(c))); };
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    const float c0 =
        fmaf(w[0].w, low_bf16(x[i + 3]),
             fmaf(w[0].z, low_bf16(x[i + 2]),
                  fmaf(w[0].y, low_bf16(x[i + 1]), fmaf(w[0].x, low_bf16(x[i]), 0.0f))));
    const float c1 =
        fmaf(w[1].w, high_bf16(x[i + 3]),
             fmaf(w[1].z, high_bf16(x[i + 2]),
                  fmaf(w[1].y, high_bf16(x[i + 1]), fmaf(w[1].x, high_bf16(x[i]), 0.0f))));
    out[i] = begin + i < rows.count ? narrow_pair(finish(c0), finish(c1)) : 0u;
  }
}

/// The power of two that brings a vector of this sum of squares to a norm in [2^10, 2^11).
__device__ __forceinline__ float unit_power(float squares) {
  if (squares == 0.0f) return 1.0f;
  const int exponent =
      static_cast<int>(__float_as_uint(squares) >> 23) - 127;  // squares in [2^e, 2^(e+1))
  const int power = 10 - (exponent >> 1);                      // norm in [2^(e>>1), 2^((e>>1)+1))
  return __uint_as_float(static_cast<uint32_t>(power + 127) << 23);
}

/// Phase 2: q (which = 1) or k (0) of the block's key head, bf16, into the image's places.
__device__ __forceinline__ void convolve_vectors(const GdnPrefill& args, const Run& run,
                                                 const ChunkRows& rows, int key_head, int which,
                                                 uint8_t* vectors) {
  const int pair = static_cast<int>(threadIdx.x) % kPairs;
  const int begin = static_cast<int>(threadIdx.x) / kPairs * kRowsOfThread;
  const int head = which == 0 ? args.num_k_heads + key_head : key_head;
  uint32_t out[kRowsOfThread];
  convolve(args, run, rows, head * kHeadDim + 2 * pair, begin, out);
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    *reinterpret_cast<uint32_t*>(vectors + unit_at(begin + i, pair / 4) + pair % 4 * 4) = out[i];
  }
}

/// Norms, and bf16 to scaled f16 in place: a warp a row, a lane four channels.
__device__ __forceinline__ void scale_vectors(uint8_t* vectors, float (&inverse)[2][kRows]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll 4
  for (int i = warp; i < 2 * kRows; i += kFactorWarps) {
    const int which = i / kRows;
    const int row = i % kRows;
    auto* at = reinterpret_cast<uint2*>(vectors + which * kVectorsBytes + unit_at(row, lane / 2) +
                                        lane % 2 * 8);
    const uint2 c = *at;
    const float squares =
        warp_sum(fmaf(high_bf16(c.y), high_bf16(c.y), low_bf16(c.y) * low_bf16(c.y)) +
                 fmaf(high_bf16(c.x), high_bf16(c.x), low_bf16(c.x) * low_bf16(c.x)));
    const float power = unit_power(squares);
    *at = make_uint2(f16_pair(low_bf16(c.x) * power, high_bf16(c.x) * power),
                     f16_pair(low_bf16(c.y) * power, high_bf16(c.y) * power));
    if (lane == 0) {
      const float unit = gdn::inverse_root(squares + gdn::kL2NormEps) / power;
      inverse[which][row] = which == 0 ? unit : unit * gdn::kQueryScale;
    }
  }
}

/// Phase 3: warps 0 .. 3 k k^T, 4 .. 7 q k^T; a warp has 16 rows and the columns up to their end.
__device__ __forceinline__ void multiply_vectors(uint32_t vectors, float* keys, float* queries) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int block = static_cast<int>(threadIdx.x) / kWarp % kBlocks;
  const bool is_query = threadIdx.x >= kBlocks * kWarp;
  const uint32_t a_rows = vectors + (is_query ? kVectorsBytes : 0) + block * kBlock * kRowBytes;
  float sums[kRows / 8][4] = {};
#pragma unroll
  for (int s = 0; s < kHeadDim / 16; ++s) {
    uint32_t a[4];
    load_matrices(a, a_rows + static_cast<uint32_t>(unit_at(lane % 16, 2 * s + lane / 16)));
#pragma unroll
    for (int m = 0; m < kBlocks; ++m) {
      if (m > block) break;
      uint32_t b[4];
      load_matrices(b, vectors + static_cast<uint32_t>(
                                     m * kBlock * kRowBytes +
                                     unit_at(lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2)));
      mma_16816(sums[2 * m], a, b[0], b[1]);
      mma_16816(sums[2 * m + 1], a, b[2], b[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < kRows / 8; ++n) {
    if (n > 2 * block + 1) break;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block * kBlock + lane / 4 + i / 2 * 8;
      const int column = n * 8 + lane % 4 * 2 + i % 2;
      if (is_query) {
        queries[row * kQueriesPitch + column] = sums[n][i];
      } else {
        keys[column * kKeysPitch + row] = sums[n][i];
      }
    }
  }
}

/// Phase 4, first half: v of a head into shared memory, a column's rows in the image's order.
__device__ __forceinline__ void convolve_values(const GdnPrefill& args, const Run& run,
                                                const ChunkRows& rows, int head, uint32_t* values) {
  const int pair = static_cast<int>(threadIdx.x) % kPairs;
  const int begin = static_cast<int>(threadIdx.x) / kPairs * kRowsOfThread;
  uint32_t out[kRowsOfThread];
  convolve(args, run, rows, (2 * args.num_k_heads + head) * kHeadDim + 2 * pair, begin, out);
#pragma unroll
  for (int i = 0; i < kRowsOfThread; i += 2) {
    uint32_t* to = values + 2 * pair * kValuesPitch + place_of_row(begin + i) / 2;
    to[0] = __byte_perm(out[i], out[i + 1], 0x5410);
    to[kValuesPitch] = __byte_perm(out[i], out[i + 1], 0x7632);
  }
}
/// Second half: to global memory.
__device__ __forceinline__ void store_values(const uint32_t* values, uint8_t* image) {
  constexpr int kVectorsOfColumn = kRows / 4;
  auto* to = reinterpret_cast<uint2*>(image);
#pragma unroll
  for (int i = 0; i < kHeadDim * kVectorsOfColumn / kFactorThreads; ++i) {
    const int item = i * kFactorThreads + static_cast<int>(threadIdx.x);
    to[item] = *reinterpret_cast<const uint2*>(values + item / kVectorsOfColumn * kValuesPitch +
                                               item % kVectorsOfColumn * 2);
  }
}

/// exp(G_i - G_j), i >= j.
__device__ __forceinline__ float decay(const float2* G, int i, int j) {
  return expf((G[i].x - G[j].x) + (G[i].y - G[j].y));
}

/// Phase 5: A of a head, [column][row]; what is not below the diagonal stays unwritten.
template <typename Gate>
__device__ __forceinline__ void form_triangle(const float* keys, const float* inverse,
                                              const Gate& gate, float* A) {
  const int row = static_cast<int>(threadIdx.x) % kRows;
  const float factor = -gate.beta[row] * inverse[row];
  for (int column = static_cast<int>(threadIdx.x) / kRows; column < row;
       column += kFactorThreads / kRows) {
    const int at = column * kKeysPitch + row;
    A[at] = factor * (keys[at] * inverse[column]) * decay(gate.G, row, column);
  }
}

/// Columns [kBegin, kEnd) of the substitution; x: a column of T.
template <int kBegin, int kEnd>
__device__ __forceinline__ void substitute(const float* A, float (&x)[kRows]) {
#pragma unroll
  for (int m = kBegin; m < kEnd; ++m) {
#pragma unroll
    for (int i = m / 4 * 4; i < kRows; i += 4) {
      const float4 a = *reinterpret_cast<const float4*>(A + m * kKeysPitch + i);
      if (i > m) x[i] = fmaf(a.x, x[m], x[i]);
      if (i + 1 > m) x[i + 1] = fmaf(a.y, x[m], x[i + 1]);
      if (i + 2 > m) x[i + 2] = fmaf(a.z, x[m], x[i + 2]);
      if (i + 3 > m) x[i + 3] = fmaf(a.w, x[m], x[i + 3]);
    }
    asm volatile("" ::: "memory");  // loads of later columns stay behind: registers are short
  }
}

/// T diag(beta) kTriangleScale from A, in its place: the block, two warps a head, a thread a column. A call of its own, so that it has the registers to itself.
template <int kGroup>
__device__ __noinline__ void invert_triangles(FactorsShared<kGroup>& shared) {
  const int head = static_cast<int>(threadIdx.x) / kRows;
  const int column = static_cast<int>(threadIdx.x) % kRows;
  float x[kRows];
  if (head < kGroup) {
    const float* A = shared.triangles[head];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = i == column ? 1.0f : 0.0f;
    // The upper half of the columns (a warp) has zeros in the upper half of the rows.
    if (column < kWarp) substitute<0, kWarp>(A, x);
    substitute<kWarp, kRows - 1>(A, x);
  }
  __syncthreads();
  if (head < kGroup) {
    const float scale = shared.gates[head].beta[column] * kTriangleScale;
    auto* to = reinterpret_cast<float4*>(shared.triangles[head] + column * kKeysPitch);
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      to[i] = make_float4(x[4 * i] * scale, x[4 * i + 1] * scale, x[4 * i + 2] * scale,
                          x[4 * i + 3] * scale);
    }
  }
}

/// A lane's eight values of a block as pairs of f16; at(row, column) in the triangle.
template <typename At>
__device__ __forceinline__ void store_block(uint8_t* block, int i, int j, At at) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = i * kBlock + lane / 4;
  const int column = j * kBlock + lane % 4 * 2;
  const SplitPair p[4] = {split(at(row, column), at(row, column + 1)),
                          split(at(row, column + 8), at(row, column + 9)),
                          split(at(row + 8, column), at(row + 8, column + 1)),
                          split(at(row + 8, column + 8), at(row + 8, column + 9))};
  auto* to = reinterpret_cast<uint4*>(block) + lane;
  *to = make_uint4(p[0].high, p[1].high, p[2].high, p[3].high);
  to[kWarp] = make_uint4(p[0].low, p[1].low, p[2].low, p[3].low);
}

/// Phase 6: both triangles of a head, a warp a block after the other.
template <typename Gate>
__device__ __forceinline__ void store_triangles(const float* T, const float* queries,
                                                const float (&inverse)[2][kRows], const Gate& gate,
                                                uint8_t* image) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll 1
  for (int item = warp; item < 2 * kTriangleBlocks; item += kFactorWarps) {
    const int block = item % kTriangleBlocks;
    const int i = block >= 6 ? 3 : block >= 3 ? 2 : block >= 1 ? 1 : 0;
    const int j = block - triangle_block(i, 0);
    uint8_t* to = image + item * 2 * kMatrixBytes;
    if (item < kTriangleBlocks) {
      store_block(to, i, j, [&](int row, int column) { return T[column * kKeysPitch + row]; });
    } else {
      store_block(to, i, j, [&](int row, int column) {
        if (column > row) return 0.0f;
        const float product =
            queries[row * kQueriesPitch + column] * (inverse[1][row] * kTriangleScale);
        return product * inverse[0][column] * decay(gate.G, row, column);
      });
    }
  }
}

template <typename Gate>
__device__ __forceinline__ void store_factors(const float (&inverse)[2][kRows], const Gate& gate,
                                              int row, Factors* to) {
  const float from_start = expf(gate.G[row].x);
  to->key[row] = from_start * inverse[0][row];
  to->query[row] = from_start * (inverse[1][row] * kTriangleScale);
  to->tail[row] = decay(gate.G, kRows - 1, row) * (inverse[0][row] * kTailScale);
  if (row == kRows - 1) to->decay = from_start;
}

/// Grid (chunks of the segment, num_k_heads).
template <int kGroup>
__global__ void __launch_bounds__(kFactorThreads, 2)
    factors_kernel(Images images, Segment segment, GdnPrefill args) {
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<FactorsShared<kGroup>*>(memory);
  const int key_head = static_cast<int>(blockIdx.y);
  const int chunk = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  ChunkRows rows;
  rows.first = (segment.first_chunk + chunk) * kRows;
  rows.count = min(kRows, segment.run.num_rows - rows.first);
  rows.step_row = segment.run.first_row + rows.first;

  if (warp < kGroup) make_gates(args, rows, key_head * kGroup + warp, shared.gates[warp]);
#pragma unroll 1
  for (int which = 0; which < 2; ++which) {
    convolve_vectors(args, segment.run, rows, key_head, which,
                     shared.vectors + which * kVectorsBytes);
  }
  __syncthreads();
  scale_vectors(shared.vectors, shared.inverse);
  __syncthreads();
  auto* key_image = reinterpret_cast<uint4*>(images.key_image(chunk, key_head));
#pragma unroll 4
  for (int i = thread; i < kKeyImageBytes / 16; i += kFactorThreads) {
    key_image[i] = reinterpret_cast<const uint4*>(shared.vectors)[i];
  }
  multiply_vectors(shared_address(shared.vectors), shared.keys, shared.queries);
  __syncthreads();
#pragma unroll 1
  for (int h = 0; h < kGroup; ++h) {
    const int head = key_head * kGroup + h;
    convolve_values(args, segment.run, rows, head, shared.values);
    __syncthreads();
    store_values(shared.values, images.value_image(chunk, head));
    __syncthreads();
  }
#pragma unroll 1
  for (int h = 0; h < kGroup; ++h)
    form_triangle(shared.keys, shared.inverse[0], shared.gates[h], shared.triangles[h]);
  __syncthreads();
  invert_triangles(shared);
  if (const int h = thread / kRows; h < kGroup) {
    store_factors(
        shared.inverse, shared.gates[h], thread % kRows,
        reinterpret_cast<Factors*>(images.head_image(chunk, key_head * kGroup + h) + kFactorsAt));
  }
  __syncthreads();
#pragma unroll 1
  for (int h = 0; h < kGroup; ++h) {
    store_triangles(shared.triangles[h], shared.queries, shared.inverse, shared.gates[h],
                    images.head_image(chunk, key_head * kGroup + h));
  }
}

}  // namespace sluice::cuda::gdn_prefill
