#pragma once
// How the CUDA backend keeps a projection's weight, and the order in which every kernel sums over it.
//
// Row group: 8 output rows. Block: 64 of K. The blocks of a row group lie one behind the other, row groups likewise, so a row group's stretch of K is one bulk
// copy and a block is what one warp reads with 16 bytes a lane: lane 4 r + t holds row r's share of matrix fragments.
//
//   kFp8Block128: 512 bytes a block. Word s (0 .. 3) of a lane is the A fragment of k16 step s: bytes i = k_in_block(s, t) + i.
//   kBf16:        1,024 bytes, f16. Half h of 512 bytes holds steps 2h and 2h + 1: a lane's 8 values are k = 32 h + 8 t + 0 .. 7. A row is multiplied by a power of two
//                 that brings its largest value to [2^14, 2^15), so that f16 holds bf16's 8 bits down to 2^-31 of it; row_factors undo it.
//
// Activations meet the weights as f16(x * 2^-4): exact from 2^-13 to 1.04e6, f16 subnormals below (an absolute error of 2^-21); what is larger raises
// the step's range flag instead of passing as infinity.

#include <cstdint>

#include "base/host_device.h"

namespace sluice::cuda {

inline constexpr int kRowGroup = 8;
inline constexpr int kPackBlock = 64;
inline constexpr int kScaleBlock = 128;
inline constexpr int kFp8BlockBytes = kRowGroup * kPackBlock;
inline constexpr int kF16BlockBytes = 2 * kFp8BlockBytes;
/// Lanes that share a row of a block, and the neighbouring values of K that a lane has of each half of it.
inline constexpr int kLanesOfRow = 4;
inline constexpr int kLaneValues = 8;
/// Exponent of the factor on activations; scales and row factors carry its inverse.
inline constexpr int kActivationShift = 4;

/// Parts of K that are summed apart, each in order, whatever the kernel: a row's bits are the same at any number of rows.
inline constexpr int kNumParts = 8;
/// First 128-block of part p of K = 128 num_blocks.
SLUICE_HOST_DEVICE constexpr int part_begin(int p, int num_blocks) {
  return p * num_blocks / kNumParts;
}

/// Where operand k of a row lies. Inside 64 of K, operands lie as the matrix instructions of sm_90 take them from shared memory: step s (16 of them) at 16 s,
/// and in it the pairs that meet the weight bytes of word s of lanes t = 0 .. 3: (4 t', 4 t' + 1) at 2 t, (4 t' + 2, 4 t' + 3) at 2 t + 8.
SLUICE_HOST_DEVICE constexpr int operand_place(int k) {
  const int step = (k >> 4 & 2) | (k >> 2 & 1);
  return (k & ~63) + 16 * step + (k >> 3 & 3) * 2 + (k & 1) + (k & 2) * 4;
}

struct PackedWeight {
  const uint8_t* data;
  /// FP8: [ceil(num_out / 128), num_in / 128], times 2^kActivationShift. Null for f16.
  const float* scales;
  /// f16: [num_out], times 2^kActivationShift. Null for FP8.
  const float* row_factors;
  int num_out;  // real rows; the last row group is filled up with zeros
  int num_in;
};

}  // namespace sluice::cuda
