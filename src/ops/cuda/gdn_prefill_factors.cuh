#pragma once
// What of a chunk does not depend on the state: the images of gdn_prefill_layout.cuh. A block makes those of one chunk of either a key head with its kGroup value heads
//
//   1  gates of the value heads, a warp each
//   2  conv + SiLU of q and k, a warp eight rows, with their norms; the key image
//   3  k k^T (warps 0 .. 3) and q k^T (4 .. 7), a warp a block row; A from the one, B from the other
//   4  the diagonal blocks' inverses; the factors by row
//   5  T, a warp a block row of a head
//
// or of a value head's v. Rows behind the run's end are k = q = v = beta = g = 0.

#include "ops/cuda/gdn_prefill_conv.cuh"
#include "ops/cuda/gdn_prefill_triangles.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda::gdn_prefill {

constexpr int kFactorThreads = kConvWarps * kWarp;

template <int kGroup>
struct alignas(128) FactorsShared {
  uint8_t vectors[kKeyImageBytes];
  Triangle triangles[kGroup];
  Gates gates[kGroup];
  float inverse[2][kRows];  // of k's and q's norms, with the images' powers of two; q's / sqrt(128)
};

/// Phases 1, 2.
template <int kGroup>
__device__ __forceinline__ void make_chunk_vectors(const GdnPrefill& args, const Chunk& chunk,
                                                   int key_head, FactorsShared<kGroup>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  GateInputs gates = {};
  if (warp < kGroup) gates = load_gates(args, chunk, key_head * kGroup + warp);
  const int channel = key_head * kHeadDim + 4 * lane;  // of q
  const int key_channel = channel + args.num_k_heads * kHeadDim;
  const ConvInputs keys = load_inputs(args, chunk, key_channel, warp * kConvRows);
  const ConvInputs queries = load_inputs(args, chunk, channel, warp * kConvRows);
  if (warp < kGroup) make_gates(gates, chunk.count, shared.gates[warp]);
  make_vectors(args, chunk, keys, 0, key_channel, shared.vectors, shared.inverse[0]);
  make_vectors(args, chunk, queries, 1, channel, shared.vectors + kVectorsBytes, shared.inverse[1]);
}

/// Phase 3.
template <int kGroup>
__device__ __forceinline__ void make_products(const Images& images, int image, int key_head,
                                              FactorsShared<kGroup>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int block = warp % kBlocks;
  const uint32_t keys = shared_address(shared.vectors);
  RowSums sums;
  if (warp < kBlocks) {
    multiply_vectors(keys, keys, block, block, kBlocks - 1, sums);
    scale_sums(sums, block, shared.inverse[0], shared.inverse[0], 1.0f);
#pragma unroll 1
    for (int h = 0; h < kGroup; ++h) {
      form_below(sums, shared.gates[h], block, shared.triangles[h]);
    }
  } else {
    multiply_vectors(keys + kVectorsBytes, keys, block, 0, block, sums);
    scale_sums(sums, block, shared.inverse[1], shared.inverse[0], kTriangleScale);
#pragma unroll 1
    for (int h = 0; h < kGroup; ++h) {
      store_outputs_triangle(sums, shared.gates[h], block,
                             images.head_image(image, key_head * kGroup + h) + kTriangleBytes);
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

/// Grid (images, num_k_heads + num_v_heads).
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
  const bool is_last = threadIdx.x == kFactorThreads - 1;
  if (is_last) {
    store_bulk(images.key_image(image, key_head), shared_address(shared.vectors), kKeyImageBytes);
  }
  make_products(images, image, key_head, shared);
  __syncthreads();
  make_diagonals(images, image, key_head, shared);
  __syncthreads();
  make_solutions(images, image, key_head, shared);
  if (is_last) store_bulk_wait();
}

}  // namespace sluice::cuda::gdn_prefill
