#pragma once
// What the skinny kernels share: how tiles of rows fall to blocks, a warp's part of K, and a tile's arithmetic. See skinny.h.
//
// A block of 8 warps owns whole tiles (two row groups, or one in f16); warp p sums part p of K for all of them, and the parts are joined in shared memory. No block
// waits for another, and the layout does not depend on the number of multiprocessors.

#include "ops/cuda/fragments.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/skinny.h"
#include "ops/cuda/skinny_stream.cuh"

namespace sluice::cuda {

constexpr int kSkinnyWarps = kNumParts;
constexpr int kSkinnyThreads = kSkinnyWarps * kWarp;
/// A thread's, at most: two such warps and three of the GDN core's fill a quarter of a multiprocessor's registers, so that core and projection begin beside each other.
constexpr int kSkinnyRegisters = 136;
constexpr int kPairedRowsMin = 2;
constexpr int kTileRows = 2 * kRowGroup;
/// Pairs of K that a slot of the ring holds, at most, and whose chains of steps run side by side.
constexpr int kUnitPairsMax = 3;

/// Sizes and places of one launch, worked out on the host: what a block needs first lies first.
struct SkinnyPlan {
  // Tiles of block i: tiles_per_block, one more for the first `more_tiles` blocks.
  int tiles_per_block;
  int more_tiles;
  int num_pairs;   // 128-blocks of K
  int tile_bytes;  // of two FP8 row groups or one of f16
  // The ring of a warp, and how a part is cut into its slots.
  int num_slots;
  int unit_pairs;
  int slot_bytes;
  // Places in shared memory; a warp's own lie `..._bytes` apart.
  int ring_bytes;
  int operands;
  int operand_bytes;
  int barriers;
  int sums;
  int operand_slots;  // stretches of a warp's part that lie in shared memory
  int operand_pairs;  // pairs of such a stretch
  int joined_tiles;   // tiles whose parts wait in shared memory for one join
  bool
      sums_apart;  // sums have memory of their own, twice, so that warps go on while one is joined; else they take the operands' place
  int late_units;  // of a warp's units, those asked into the L2 behind a full ring
  int row_shift;   // log2 of the rows, rounded up
  bool pairs;      // blocks are clusters of two, which share what they read of the operands
  int smem_bytes;
};

/// Bytes from one row's operands to the next in shared memory: a matrix load's eight rows meet different banks.
SLUICE_HOST_DEVICE constexpr int operand_stride(int num_pairs) {
  return num_pairs * kScaleBlock * 2 + 16;
}

/// Tiles [first, last) of this block.
struct TileRange {
  int first, last;
};
__device__ __forceinline__ TileRange tiles_of_block(const SkinnyPlan& plan) {
  const int block = static_cast<int>(blockIdx.x);
  const int more = block < plan.more_tiles ? block : plan.more_tiles;
  const int first = block * plan.tiles_per_block + more;
  return {first, first + plan.tiles_per_block + (block < plan.more_tiles ? 1 : 0)};
}

/// A warp's part of K, in pairs.
struct Part {
  int first, count;
};
__device__ __forceinline__ Part part_of_warp(int num_pairs) {
  const int p = static_cast<int>(threadIdx.x) / kWarp;
  const int first = part_begin(p, num_pairs);
  return {first, part_begin(p + 1, num_pairs) - first};
}

/// One or two row groups at the start of their K.
struct Tile {
  const uint8_t* a;
  const uint8_t* b;  // null: eight rows
  const float* a_scales;
  const float* b_scales;  // null with f16
};

template <bool kFp8>
constexpr int kPairBytes = 2 * (kFp8 ? kFp8BlockBytes : kF16BlockBytes);  // of one row group

__device__ __forceinline__ bool is_fp8(const PackedWeight& w) {
  return w.scales != nullptr;
}

/// The scales of row group `group`.
__device__ __forceinline__ const float* scales_of(const PackedWeight& w, int group, int num_pairs) {
  constexpr int kGroupsPerScale = kScaleBlock / kRowGroup;
  return w.scales + static_cast<int64_t>(group / kGroupsPerScale) * num_pairs;
}

/// Row groups `group` and, where `has_b`, the next one.
__device__ __forceinline__ Tile tile_of_groups(const SkinnyPlan& plan, const PackedWeight& w,
                                               int group, bool has_b) {
  const bool fp8 = is_fp8(w);
  const int group_bytes = fp8 ? plan.tile_bytes / 2 : plan.tile_bytes;
  Tile tile;
  tile.a = w.data + static_cast<int64_t>(group) * group_bytes;
  tile.b = has_b ? tile.a + group_bytes : nullptr;
  tile.a_scales = fp8 ? scales_of(w, group, plan.num_pairs) : nullptr;
  tile.b_scales = fp8 && has_b ? scales_of(w, group + 1, plan.num_pairs) : tile.a_scales;
  return tile;
}

/// Scales of a warp's part for one tile, a pair a lane (so a part has at most 32 pairs).
struct PartScales {
  float a, b;
  __device__ __forceinline__ void load(const Tile& tile, const Part& part) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const bool has = lane < part.count && tile.a_scales != nullptr;
    a = has ? __ldg(tile.a_scales + part.first + lane) : 1.0f;
    b = has ? __ldg(tile.b_scales + part.first + lane) : 1.0f;
  }
};

__device__ __forceinline__ uint4 read_lane(const uint8_t* block) {
  return reinterpret_cast<const uint4*>(block)[threadIdx.x % kWarp];
}

/// A lane's operands of 64 of K: x[2 s], x[2 s + 1] meet step s.
struct BlockOperands {
  uint32_t x[8];
  /// `row`: where this lane's row of the matrix load begins (operands_of_lane), at the block's first operand.
  __device__ __forceinline__ void load(const uint8_t* row) {
    load_matrices(row, x);
    load_matrices(row + kPackBlock, x + 4);
  }

 private:
  /// Four matrices of 8 rows x 8 operands, one behind the other in K: two steps.
  __device__ __forceinline__ static void load_matrices(const uint8_t* row, uint32_t* x) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row)));
  }
};

/// A lane's weights of 64 of K in two row groups.
template <bool kFp8>
struct BlockWeights;
template <>
struct BlockWeights<true> {
  uint32_t a[4], b[4];
  template <bool kHasB>
  __device__ __forceinline__ void load(const uint8_t* from_a, const uint8_t* from_b) {
    const uint4 wa = read_lane(from_a);
    const uint4 wb = read_lane(from_b);
    a[0] = wa.x, a[1] = wa.y, a[2] = wa.z, a[3] = wa.w;
    b[0] = wb.x, b[1] = wb.y, b[2] = wb.z, b[3] = wb.w;
  }
  __device__ __forceinline__ void step(int s, const BlockOperands& in, float (&t)[4]) const {
    uint32_t a0, a1, a2, a3;
    widen_fp8(a[s], &a0, &a2);
    widen_fp8(b[s], &a1, &a3);
    mma_step(t, a0, a1, a2, a3, in.x[2 * s], in.x[2 * s + 1]);
  }
};
template <>
struct BlockWeights<false> {
  uint4 a[2], b[2];
  /// Without a second row group its half of the tile repeats the first.
  template <bool kHasB>
  __device__ __forceinline__ void load(const uint8_t* from_a, const uint8_t* from_b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      a[half] = read_lane(from_a + half * kFp8BlockBytes);
      b[half] = kHasB ? read_lane(from_b + half * kFp8BlockBytes) : a[half];
    }
  }
  __device__ __forceinline__ void step(int s, const BlockOperands& in, float (&t)[4]) const {
    const uint4& wa = a[s / 2];
    const uint4& wb = b[s / 2];
    const bool odd = s % 2 == 1;
    mma_step(t, odd ? wa.z : wa.x, odd ? wb.z : wb.x, odd ? wa.w : wa.y, odd ? wb.w : wb.y,
             in.x[2 * s], in.x[2 * s + 1]);
  }
};

/// Where a warp stands in a tile's weights and operands.
struct PairPlace {
  const uint8_t* a;
  const uint8_t* b;
  const uint8_t* row;  // this lane's operands
  int pair;            // of the part
};

/// acc += the scaled sums of kCount pairs. Their chains of steps run side by side; acc takes them in order.
template <int kCount, bool kFp8, bool kHasB>
__device__ __forceinline__ void add_pairs(PairPlace* at, const PartScales& scales,
                                          float (&acc)[4]) {
  float t[kCount][4] = {};
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    BlockWeights<kFp8> weights[kCount];
    BlockOperands operands[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int offset = j * kPairBytes<kFp8> + block * (kPairBytes<kFp8> / 2);
      weights[j].template load<kHasB>(at->a + offset, at->b + offset);
      operands[j].load(at->row + (2 * j + block) * kPackBlock * 2);
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) weights[j].step(s, operands[j], t[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float a_scale = kFp8 ? __shfl_sync(0xffffffffu, scales.a, at->pair + j) : 1.0f;
    const float b_scale = kFp8 ? __shfl_sync(0xffffffffu, scales.b, at->pair + j) : 1.0f;
    acc[0] = __fmaf_rn(t[j][0], a_scale, acc[0]);
    acc[1] = __fmaf_rn(t[j][1], a_scale, acc[1]);
    acc[2] = __fmaf_rn(t[j][2], b_scale, acc[2]);
    acc[3] = __fmaf_rn(t[j][3], b_scale, acc[3]);
  }
  at->a += kCount * kPairBytes<kFp8>;
  at->b += kCount * kPairBytes<kFp8>;
  at->row += kCount * kScaleBlock * 2;
  at->pair += kCount;
}

/// The same of `count` pairs, a slot of the ring.
template <bool kFp8, bool kHasB>
__device__ __forceinline__ void add_unit(int count, PairPlace at, const PartScales& scales,
                                         float (&acc)[4]) {
  static_assert(kUnitPairsMax == 3);
  if (count == 3) {
    add_pairs<3, kFp8, kHasB>(&at, scales, acc);
  } else if (count == 2) {
    add_pairs<2, kFp8, kHasB>(&at, scales, acc);
  } else {
    add_pairs<1, kFp8, kHasB>(&at, scales, acc);
  }
}

/// Where this lane points in a matrix load: lanes 8 i .. 8 i + 7 at rows 0 .. 7 of matrix i. Absent rows repeat the last one; their sums are not looked at.
__device__ __forceinline__ const uint8_t* operands_of_lane(const uint8_t* operands, int stride,
                                                           int num_rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = lane % 8 < num_rows ? lane % 8 : num_rows - 1;
  return operands + row * stride + lane / 8 * 16;
}

/// Every warp's parts of a few tiles, [part][tile][row of the tile][row of the step].
class PartSums {
 public:
  /// Parts lie `part_stride` floats apart, the other half of swap() `half_stride`.
  __device__ PartSums(float* memory, int part_stride, int half_stride, int num_rows)
      : memory_(memory),
        part_stride_(part_stride),
        half_stride_(half_stride),
        num_rows_(num_rows) {}

  __device__ __forceinline__ void write(int tile, const float (&acc)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int p = static_cast<int>(threadIdx.x) / kWarp;
    const int row = lane / 4;
    const int col = 2 * (lane % 4);
    float* to = at(p, tile, row, col);
    if (col < num_rows_) {
      to[0] = acc[0];
      to[kRowGroup * num_rows_] = acc[2];
    }
    if (col + 1 < num_rows_) {
      to[1] = acc[1];
      to[kRowGroup * num_rows_ + 1] = acc[3];
    }
  }
  /// The joined sum of one output. Behind a __syncthreads().
  __device__ __forceinline__ float join(int tile, int row, int col) const {
    float parts[kNumParts];
#pragma unroll
    for (int p = 0; p < kNumParts; ++p) parts[p] = *at(p, tile, row, col);
    return join_parts(parts);
  }
  /// Writers go on in the other half while this one is joined.
  __device__ __forceinline__ void swap() {
    half_ ^= 1;
  }

 private:
  __device__ __forceinline__ float* at(int p, int tile, int row, int col) const {
    return memory_ + half_ * half_stride_ + p * part_stride_ +
           (tile * kTileRows + row) * num_rows_ + col;
  }
  float* memory_;
  int part_stride_;
  int half_stride_;
  int num_rows_;
  int half_ = 0;
};

/// One output of a join: a row of a tile, for a row of the step.
struct JoinPlace {
  int tile, row, m;
  __device__ JoinPlace(int i, const SkinnyPlan& plan)
      : tile(i >> (4 + plan.row_shift)), row(i & 15), m((i >> 4) & ((1 << plan.row_shift) - 1)) {}
};

/// The shared memory of a launch; all but `sums` is the warp's own.
struct SkinnyShared {
  uint8_t* ring;
  uint8_t* operands;   // [slot][row], operand_stride apart
  uint64_t* barriers;  // of the ring's slots, then of the operands'
  float* sums;         // of all warps

  __device__ SkinnyShared(uint8_t* memory, const SkinnyPlan& plan) {
    const int p = static_cast<int>(threadIdx.x) / kWarp;
    ring = memory + p * plan.ring_bytes;
    operands = memory + plan.operands + p * plan.operand_bytes;
    barriers = reinterpret_cast<uint64_t*>(memory + plan.barriers) +
               p * (plan.num_slots + plan.operand_slots);
    sums = reinterpret_cast<float*>(memory + plan.sums);
  }
};

/// Where row m of the input begins.
__device__ __forceinline__ int64_t input_row(const SkinnyInput& in, int m) {
  return (in.row_list == nullptr ? m : in.row_list[m]) * in.stride;
}

}  // namespace sluice::cuda
