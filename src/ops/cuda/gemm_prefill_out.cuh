#pragma once
// From a tile's sums to what a projection of a prompt stores, kStagedTokens at a time.

#include "ops/cuda/gemm_out.cuh"
#include "ops/cuda/gemm_prefill_tile.cuh"

namespace sluice::cuda {

using PrefillOut = TileOut<PrefillParams, kStagedTokens>;

/// Stages tokens of kStagedTokens at a time, piece by piece of the warp's sums; `chunk` is not known to the compiler.
template <typename Warp>
__device__ __forceinline__ void stage_chunk(const PrefillOut& out, const Warp& warp, int chunk) {
  constexpr int kQuads = Warp::kPieces * Warp::kSums / 4;
  constexpr int kAtOnce = kStagedTokens / 8;
#pragma unroll
  for (int c = 0; c < (kQuads + kAtOnce - 1) / kAtOnce; ++c) {
    if (chunk == c) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (c * kAtOnce + i < kQuads) {
          constexpr int kPieceQuads = Warp::kSums / 4;
          const int q = c * kAtOnce + i;
          const auto& piece = warp.sums[q / kPieceQuads];
          const int at = q % kPieceQuads * 4;
          out.stage(i, piece[at], piece[at + 1], piece[at + 2], piece[at + 3]);
        }
      }
    }
  }
}

/// All tokens of a whole tile.
template <int kTokens, typename Warp>
__device__ __forceinline__ void store_tile(const PrefillOut& out, const Warp& warp, int token_first,
                                           int num_rows) {
  const auto stage = [&](int chunk) {
    out.sync();  // what was staged before has been read
    stage_chunk(out, warp, chunk);
    out.sync();
  };
  const auto count = [](int chunk) { return min(kStagedTokens, kTokens - chunk * kStagedTokens); };
  const int num_chunks = (min(kTokens, num_rows - token_first) + kStagedTokens - 1) / kStagedTokens;
  if (out.is_pair()) {
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      stage(chunk);
      out.store_gate_up(token_first + chunk * kStagedTokens, count(chunk));
    }
    return;
  }
  PrefillOut::Old old = out.load_old(token_first, count(0));
#pragma unroll 1
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    const int first = token_first + chunk * kStagedTokens;
    const PrefillOut::Old next = out.load_old(first + kStagedTokens, count(chunk + 1));
    stage(chunk);
    out.store_plain(first, count(chunk), old);
    old = next;
  }
}

}  // namespace sluice::cuda
