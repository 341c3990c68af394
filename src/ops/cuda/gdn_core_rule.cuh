#pragma once
// The delta rule, row after row, with the state in registers.
//
// A run of one row reads and writes its state once, 128 bytes of a row of k at a time: four warps share 32
// columns and meet in shared memory. With several rows the steps from row to row count: a warp has 8
// columns and all of k, and needs no other. S^T q of a row is made beside S^T k of the next, from the same
// state, while the sums of S^T k go from lane to lane. Both forms add up k in the same order, by 8 in a
// thread, then rows 8 g of 32 by (0 + 2) + (1 + 3), then the 32s by (0 + 1) + (2 + 3), and so give the same bits.

#include "ops/cuda/gdn_core_block.cuh"

namespace sluice::cuda::gdn {

/// A thread's part of the state, rows of k by columns.
struct StateTile {
  float S[kRowsOfK][kColumnsOfThread];

  __device__ void load(const float* from) {
#pragma unroll
    for (int i = 0; i < kRowsOfK; ++i) {
      const float4 v = load_state(from + i * kHeadDim);
      S[i][0] = v.x, S[i][1] = v.y, S[i][2] = v.z, S[i][3] = v.w;
    }
  }
  __device__ void store(float* to) const {
#pragma unroll
    for (int i = 0; i < kRowsOfK; ++i) store_state(to + i * kHeadDim, S[i]);
  }

  /// The thread's part of S^T x.
  __device__ void multiply(const float (&x)[kRowsOfK], float (&sums)[kColumnsOfThread]) const {
#pragma unroll
    for (int c = 0; c < kColumnsOfThread; ++c) {
      sums[c] = 0.0f;
#pragma unroll
      for (int j = 0; j < kRowsOfK; ++j) sums[c] = fmaf(S[j][c], x[j], sums[c]);
    }
  }
  /// S <- decay S + k d^T
  __device__ void decay_by(float decay) {
#pragma unroll
    for (int j = 0; j < kRowsOfK; ++j) {
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; ++c) S[j][c] *= decay;
    }
  }
  __device__ void add(const float (&k)[kRowsOfK], const float (&d)[kColumnsOfThread]) {
#pragma unroll
    for (int j = 0; j < kRowsOfK; ++j) {
#pragma unroll
      for (int c = 0; c < kColumnsOfThread; ++c) S[j][c] = fmaf(k[j], d[c], S[j][c]);
    }
  }
};

__device__ __forceinline__ void load_eight(const float* from, float (&to)[kRowsOfK]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

/// Over four lanes of the same columns, which differ in the bits 2 kStep and kStep: a lane gets the sum of
/// one column, that of its two bits.
template <int kStep>
__device__ __forceinline__ float reduce(const float (&a)[kColumnsOfThread], unsigned lane) {
  float x[kColumnsOfThread] = {a[0], a[1], a[2], a[3]};
  const auto halve = [](bool upper, float lo, float hi, int step) {
    return (upper ? hi : lo) + __shfl_xor_sync(kAllLanes, upper ? lo : hi, step);
  };
  const bool upper = (lane & (2 * kStep)) != 0;
  const float a0 = halve(upper, x[0], x[2], 2 * kStep);
  const float a1 = halve(upper, x[1], x[3], 2 * kStep);
  return halve((lane & kStep) != 0, a0, a1, kStep);
}

// ---- one row ----

/// Thread: k rows 32 (warp % 4) + 8 (lane / 8) + {0 .. 7}, columns 32 (warp / 4) + 4 (lane % 8) + {0 .. 3} of
/// the block's.
template <typename L>
struct StepPlace {
  unsigned lane, over_k, group, own, summed, row_of_k;

  __device__ StepPlace() {
    const unsigned warp = threadIdx.x / kWarp;
    lane = threadIdx.x % kWarp;
    over_k = warp % kWarpsOverK;
    group = warp / kWarpsOverK;
    own = group * kSumChannels + lane % 8 * kColumnsOfThread;  // first column
    summed = own + lane / 8;                                   // of reduce()
    row_of_k = over_k * 32 + lane / 8 * kRowsOfK;
  }
  __device__ unsigned offset(unsigned slice) const {  // in the head's state
    return row_of_k * kHeadDim + slice * L::kColumns + own;
  }
};

/// The sum of squares of 32 columns of o to every block of the cluster. A warp.
template <typename L>
__device__ __forceinline__ void share_sum(Shared<L>& shared, int row, unsigned group,
                                          unsigned slice, unsigned rank, float squares) {
  float* to = &shared.rows[row].sums[slice * L::kGroups + group];
  if constexpr (L::kSlices > 1) {
    if (rank < L::kSlices) sums_send(to, &shared.all_sums, rank, squares);
  } else {
    if (rank == 0) *to = squares;
  }
}

/// The run's one row.
template <typename L>
__device__ __forceinline__ void recur_once(StateTile& tile, const StepPlace<L>& my,
                                           Shared<L>& shared, unsigned slice) {
  SharedStep<L>& step = shared.work.step;
  SharedRow<L>& row = shared.rows[0];
  constexpr int kThreads = kWarpsOverK * kWarp;
  const auto join = [&](const float(&parts)[kWarpsOverK][L::kColumns], unsigned column) {
    return (parts[0][column] + parts[1][column]) + (parts[2][column] + parts[3][column]);
  };
  float k[kRowsOfK], q[kRowsOfK], part[kColumnsOfThread], d[kColumnsOfThread];
  load_eight(&step.qk[1][my.row_of_k], k);
  const uint2 v = *reinterpret_cast<const uint2*>(&row.values[my.own]);
  const Factors f = factors_of(row.gate, step.squares);
  tile.multiply(k, part);
  step.partials[my.over_k][my.summed] = reduce<8>(part, my.lane);
  d[0] = low_bf16(v.x) * f.weight, d[1] = high_bf16(v.x) * f.weight;
  d[2] = low_bf16(v.y) * f.weight, d[3] = high_bf16(v.y) * f.weight;
  tile.decay_by(f.decay);
  load_eight(&step.qk[0][my.row_of_k], q);
  barrier_sync(kPartials + static_cast<int>(my.group), kThreads);
  float4 parts[kWarpsOverK];
#pragma unroll
  for (int i = 0; i < kWarpsOverK; ++i) {
    parts[i] = *reinterpret_cast<const float4*>(&step.partials[i][my.own]);
  }
  const auto sum = [](float a, float b, float c, float e) { return (a + b) + (c + e); };
  d[0] = fmaf(f.scale, sum(parts[0].x, parts[1].x, parts[2].x, parts[3].x), d[0]);
  d[1] = fmaf(f.scale, sum(parts[0].y, parts[1].y, parts[2].y, parts[3].y), d[1]);
  d[2] = fmaf(f.scale, sum(parts[0].z, parts[1].z, parts[2].z, parts[3].z), d[2]);
  d[3] = fmaf(f.scale, sum(parts[0].w, parts[1].w, parts[2].w, parts[3].w), d[3]);
  tile.add(k, d);
  tile.multiply(q, part);
  step.o[my.over_k][my.summed] = reduce<8>(part, my.lane);
  barrier_sync(kPartials + static_cast<int>(my.group), kThreads);
  if (my.over_k != 0) return;
  const unsigned column = my.group * kSumChannels + my.lane;
  const bf16 o = round_half(join(step.o, column) * f.unit_q);
  row.values[column] = o;
  share_sum(shared, 0, my.group, slice, my.lane, warp_sum(widen(o) * widen(o)));
}

// ---- several rows ----

/// Thread: k rows 8 (lane / 2) + {0 .. 7}, columns 8 warp + 4 (lane % 2) + {0 .. 3} of the block's.
template <typename L>
struct TilePlace {
  static constexpr int kColumnsOfWarp = 2 * kColumnsOfThread;
  unsigned warp, lane, own, summed, row_of_k;

  __device__ TilePlace() {
    warp = threadIdx.x / kWarp;
    lane = threadIdx.x % kWarp;
    own = warp * kColumnsOfWarp + lane % 2 * kColumnsOfThread;
    summed = own + lane / 2 % 4;  // of sum_over_k(): bits 1 and 2 of the lane
    row_of_k = lane / 2 * kRowsOfK;
  }
  __device__ unsigned offset(unsigned slice) const {
    return row_of_k * kHeadDim + slice * L::kColumns + own;
  }
};

/// S^T k and S^T q over the 16 lanes of the same columns, of which each gets one sum: of the column of its
/// bits 1 and 2; of k in the lanes without bit 3, of q in those with it.
__device__ __forceinline__ float sum_over_k(const float (&of_k)[kColumnsOfThread],
                                            const float (&of_q)[kColumnsOfThread], unsigned lane) {
  const float sum_k = reduce<2>(of_k, lane);
  const float sum_q = reduce<2>(of_q, lane);
  const bool has_q = (lane & 8) != 0;
  const float given = __shfl_xor_sync(kAllLanes, has_q ? sum_k : sum_q, 8);
  const float sum = (has_q ? sum_q : sum_k) + given;
  return sum + __shfl_xor_sync(kAllLanes, sum, 16);
}

/// What the lanes of the same columns and without bit 3 have, column i from the lane with bits 1 and 2
/// equal to i.
__device__ __forceinline__ void spread(float mine, float (&d)[kColumnsOfThread]) {
#pragma unroll
  for (int i = 0; i < kColumnsOfThread; ++i) {
    // Segments of the lanes that differ in bits 1, 2 and 3 only.
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x111f, 0xffffffff;"
                 : "=f"(d[i])
                 : "f"(mine), "r"(2 * i));
  }
}

/// `count` rows, a tile, the first being `row` of the run; o in place of v, no sums yet.
template <typename L>
__device__ __forceinline__ void recur(StateTile& state, const TilePlace<L>& my, const Place<L>& at,
                                      int row, int count, Shared<L>& shared) {
  SharedTile<L>& tile = shared.work.tile;
  const float* qk = &tile.qk[0][0][my.row_of_k];
  const float4* factors = tile.factors[my.warp];
  bf16* value = &shared.rows[row].values[my.summed];
  constexpr int kRowValues = sizeof(SharedRow<L>) / sizeof(bf16);
  // Rows of the tile behind which the checkpoint is taken.
  const int kept = at.checkpoint_rows() - row;
  const bool has_q = (my.lane & 8) != 0;
  bool has_o = false;  // of the row before
  float k[kRowsOfK], q[kRowsOfK] = {};
  float unit_q = 0.0f;  // of the row before, like q
  load_eight(qk + kHeadDim, k);
  int i = 0;
#pragma unroll 1
  while (i < count) {
    const int stop = i < kept && kept < count ? kept : count;
#pragma unroll 1
    for (; i < stop; ++i) {
      const float4 f = *factors++;
      const float v = widen(*value);
      float of_k[kColumnsOfThread], of_q[kColumnsOfThread], d[kColumnsOfThread];
      state.multiply(k, of_k);
      state.multiply(q, of_q);
      load_eight(qk, q);
      qk += kChannelsQk;
      const float sum = sum_over_k(of_k, of_q, my.lane);
      spread(fmaf(f.z, sum, v * f.y), d);
      if (has_o) value[-kRowValues] = round_half(sum * unit_q);
      state.decay_by(f.x);
      state.add(k, d);
      load_eight(qk + kHeadDim, k);  // behind the last row: something, unused
      has_o = has_q;
      unit_q = f.w;
      value += kRowValues;
    }
    if (i == kept) state.store(at.state(at.run.checkpoint_slot) + my.offset(at.slice()));
  }
  float of_q[kColumnsOfThread];
  state.multiply(q, of_q);
  const float sum = sum_over_k(of_q, of_q, my.lane);
  if (has_q) value[-kRowValues] = round_half(sum * unit_q);
}

}  // namespace sluice::cuda::gdn
