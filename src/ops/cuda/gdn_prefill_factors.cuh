#pragma once
// What of a chunk does not depend on the state: the images of gdn_prefill_layout.cuh. A block makes those of one chunk of either a key head with its kGroup value heads
//
//   1  gates of the value heads, a warp each
//   2  conv + SiLU of q and k, a warp eight rows, with their norms; the key image
//   3  k k^T (warps 0 .. 3) and q k^T (4 .. 7), two or three blocks of 16 x 16 a warp; A from the one, B from the other
//   4  the diagonal blocks' inverses; the factors by row
//   5  T, a warp a block row of a head
//
// or of a value head's v. Rows behind the run's end are k = q = v = beta = g = 0.

#include "ops/cuda/gdn_prefill_conv.cuh"
#include "ops/cuda/gdn_prefill_triangles.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kFactorThreads = kConvWarps * kWarp;
constexpr int kStoringThread = kFactorThreads - 1;

template <int kGroup>
struct alignas(128) FactorsShared {
  union {
    uint8_t vectors[kKeyImageBytes];  // until k k^T and q k^T lie in registers
    Triangle triangles[kGroup];
  };
  Gates gates[kGroup];
  float inverse[2][kRows];  // of k's and q's norms, with the images' powers of two; q's / sqrt(128)
};

/// Phases 1, 2.
template <int kGroup>
__device__ __forceinline__ void make_chunk_vectors(const GdnPrefill& args, const Chunk& chunk,
                                                   int key_head, FactorsShared<kGroup>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (warp < kGroup) {
    make_gates(load_gates(args, chunk, key_head * kGroup + warp), chunk.count, shared.gates[warp]);
  }
#pragma unroll 1
  for (int which = 0; which < 2;
       ++which) {  // one copy of the code: instructions have to be fetched too
    const int head = which == 0 ? args.num_k_heads + key_head : key_head;
    const int channel = head * kHeadDim + 4 * lane;
    const ConvInputs in = load_inputs(args, chunk, channel, warp * kConvRows);
    make_vectors(args, chunk, in, which, channel, shared.vectors, shared.inverse[which]);
  }
}

/// Phase 3.
template <int kGroup>
__device__ __forceinline__ void make_products(const Images& images, int image, int key_head,
                                              FactorsShared<kGroup>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const uint32_t keys = shared_address(shared.vectors);
  const bool is_query = warp >= kConvWarps / 2;
  BlockSums sums[kWarpBlocks];
#pragma unroll
  for (int b = 0; b < kWarpBlocks; ++b) {
    const int block = warp % 4 + 4 * b;
    if (block >= kTriangleBlocks) break;
    const BlockPlace at = block_place(block);
    const int of_rows = is_query ? at.i : at.j;
    const int of_columns = is_query ? at.j : at.i;
    multiply_vectors(keys, is_query ? 1 : 0, of_rows, of_columns, sums[b]);
    scale_sums(sums[b], shared.inverse[is_query ? 1 : 0] + of_rows * kBlock,
               shared.inverse[0] + of_columns * kBlock, is_query ? kTriangleScale : 1.0f);
  }
  if (threadIdx.x == kStoringThread) store_bulk_wait();
  __syncthreads();
#pragma unroll 1
  for (int h = 0; h < kGroup; ++h) {
    uint8_t* outputs = images.head_image(image, key_head * kGroup + h) + kTriangleBytes;
#pragma unroll
    for (int b = 0; b < kWarpBlocks; ++b) {
      const int block = warp % 4 + 4 * b;
      if (block >= kTriangleBlocks) break;
      const BlockPlace at = block_place(block);
      if (is_query) {
        store_outputs_block(sums[b], shared.gates[h], at, outputs);
      } else {
        form_block(sums[b], shared.gates[h], at, shared.triangles[h]);
      }
    }
  }
}

/// Phase 4.
template <int kGroup>
__device__ __forceinline__ void make_diagonals(const Images& images, int image, int key_head,
                                               FactorsShared<kGroup>& shared) {
  constexpr int kColumns = kGroup * kRows;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kColumns) {
    const int block = thread % kRows / kBlock;
    invert_diagonal(shared.triangles[thread / kRows].diagonal[block], thread % kBlock);
  } else {
    for (int i = thread - kColumns; i < kColumns; i += kFactorThreads - kColumns) {
      const int head = i / kRows;
      store_factors(shared.inverse, shared.gates[head], i % kRows,
                    reinterpret_cast<Factors*>(images.head_image(image, key_head * kGroup + head) +
                                               kFactorsAt));
    }
  }
}

/// Phase 5: long block rows first.
template <int kGroup>
__device__ __forceinline__ void make_solutions(const Images& images, int image, int key_head,
                                               const FactorsShared<kGroup>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll 1
  for (int turn = 0; turn < 2; ++turn) {
    const int task = turn == 0 ? warp : 2 * kConvWarps - 1 - warp;
    if (task >= kGroup * kBlocks) continue;
    const int head = task % kGroup;
    solve_block_row(kBlocks - 1 - task / kGroup, shared.triangles[head], shared.gates[head].beta,
                    images.head_image(image, key_head * kGroup + head));
  }
}

/// Grid (images, num_k_heads), or with num_v_heads more behind them, who make the values.
template <int kGroup>
__global__ void __launch_bounds__(kFactorThreads, 3)
    factors_kernel(Images images, const __grid_constant__ Batch batch,
                   const __grid_constant__ GdnPrefill args) {
  extern __shared__ __align__(1024) uint8_t memory[];
  auto& shared = *reinterpret_cast<FactorsShared<kGroup>*>(memory);
  const int image = static_cast<int>(blockIdx.x);
  const Chunk chunk = chunk_of(batch, image);
  const int key_head = static_cast<int>(blockIdx.y);
  pdl_wait();
  pdl_launch();
  if (key_head >= args.num_k_heads) {
    const int head = key_head - args.num_k_heads;
    make_values(args, chunk, head, images.value_image(image, head));
    return;
  }
  make_chunk_vectors(args, chunk, key_head, shared);
  shared_written();
  __syncthreads();
  if (threadIdx.x == kStoringThread) {
    store_bulk(images.key_image(image, key_head), shared_address(shared.vectors), kKeyImageBytes);
  }
  make_products(images, image, key_head, shared);
  __syncthreads();
  make_diagonals(images, image, key_head, shared);
  __syncthreads();
  make_solutions(images, image, key_head, shared);
}

/// The values for themselves: more blocks fit on a multiprocessor. Behind factors_kernel, of which it needs nothing but that its predecessors are done. Grid (images,
/// num_v_heads).
__global__ void __launch_bounds__(kFactorThreads, 3)
    values_kernel(Images images, const __grid_constant__ Batch batch,
                  const __grid_constant__ GdnPrefill args) {
  const int image = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  make_values(args, chunk_of(batch, image), head, images.value_image(image, head));
  pdl_wait();
  pdl_launch();
}

}  // namespace sluice::cuda::gdn_prefill
