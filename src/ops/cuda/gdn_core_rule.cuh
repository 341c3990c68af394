#pragma once
// The delta rule, row after row, with the state in registers.
//
// A run of one row reads and writes its state once, 128 bytes of a row of k at a time: four warps share 32
// columns and meet in shared memory. With several rows the steps from row to row count: a warp has 16
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

/// load_eight() of what was loaded before, which the compiler would rather keep in registers: of these there
/// are too few to mix S^T k and S^T q well.
__device__ __forceinline__ void load_again(const float* from, float (&to)[kRowsOfK]) {
  const unsigned at = shared_address(from);
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(at));
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7])
               : "r"(at + 16));
}
__device__ __forceinline__ void load_eight(const float* from, float (&to)[kRowsOfK]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

/// Half of the values go to the lane kStep further, whose half comes back to be added.
template <int kStep>
__device__ __forceinline__ float halve(float low, float high, unsigned lane) {
  const bool upper = (lane & kStep) != 0;
  return (upper ? high : low) + __shfl_xor_sync(kAllLanes, upper ? low : high, kStep);
}

// ---- one row ----

/// Thread: k rows 32 (warp % 4) + 8 (lane / 8) + {0 .. 7}, columns 32 (warp / 4) + 4 (lane % 8) + {0 .. 3} of
/// the block's.
template <typename L>
struct StepPlace {
  unsigned lane, over_k, group, own, summed, row_of_k;

  __device__ StepPlace() {
    const unsigned warp = threadIdx.x % L::kHalfThreads / kWarp;
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

/// Over the four lanes of the same columns: a lane gets the sum of one, lane / 8.
__device__ __forceinline__ float reduce(const float (&a)[kColumnsOfThread], unsigned lane) {
  const float a0 = halve<16>(a[0], a[2], lane);
  const float a1 = halve<16>(a[1], a[3], lane);
  return halve<8>(a0, a1, lane);
}

/// The sum of squares of 32 columns of o to every block of the cluster, to be counted by `barrier`: lanes by `rank`.
template <typename L>
__device__ __forceinline__ void share_sum(const Place<L>& at, int row, unsigned group,
                                          unsigned rank, float squares, uint64_t* barrier) {
  float* to = &at.row(row).sums[at.slice() * L::kGroups + group];
  if constexpr (L::kSlices > 1) {
    if (rank < L::kSlices) sums_send(to, barrier, rank, squares);
  } else {
    if (rank == 0) *to = squares;
  }
}

/// The run's one row.
template <typename L>
__device__ __forceinline__ void recur_once(StateTile& tile, const StepPlace<L>& my,
                                           const Place<L>& at) {
  SharedStep<L>& step = at.shared.work[at.half].step;
  SharedRow<L>& row = at.row(0);
  const int barrier = kPartials + at.half * L::kGroups + static_cast<int>(my.group);
  constexpr int kThreads = kWarpsOverK * kWarp;
  float k[kRowsOfK], q[kRowsOfK], part[kColumnsOfThread], d[kColumnsOfThread];
  load_eight(&step.qk[1][my.row_of_k], k);
  const uint2 v = *reinterpret_cast<const uint2*>(&row.values[my.own]);
  const Factors f = factors_of(row.gate, step.squares);
  tile.multiply(k, part);
  step.partials[my.over_k][my.summed] = reduce(part, my.lane);
  d[0] = low_bf16(v.x) * f.weight, d[1] = high_bf16(v.x) * f.weight;
  d[2] = low_bf16(v.y) * f.weight, d[3] = high_bf16(v.y) * f.weight;
  tile.decay_by(f.decay);
  load_eight(&step.qk[0][my.row_of_k], q);
  barrier_sync(barrier, kThreads);
  float4 p[kWarpsOverK];
#pragma unroll
  for (int i = 0; i < kWarpsOverK; ++i) {
    p[i] = *reinterpret_cast<const float4*>(&step.partials[i][my.own]);
  }
  d[0] = fmaf(f.scale, (p[0].x + p[1].x) + (p[2].x + p[3].x), d[0]);
  d[1] = fmaf(f.scale, (p[0].y + p[1].y) + (p[2].y + p[3].y), d[1]);
  d[2] = fmaf(f.scale, (p[0].z + p[1].z) + (p[2].z + p[3].z), d[2]);
  d[3] = fmaf(f.scale, (p[0].w + p[1].w) + (p[2].w + p[3].w), d[3]);
  tile.add(k, d);
  tile.multiply(q, part);
  step.o[my.over_k][my.summed] = reduce(part, my.lane);
  barrier_sync(barrier, kThreads);
  if (my.over_k != 0) return;
  const unsigned column = my.group * kSumChannels + my.lane;
  const auto& parts = step.o;
  const float sum = (parts[0][column] + parts[1][column]) + (parts[2][column] + parts[3][column]);
  const bf16 o = round_half(sum * f.unit_q);
  row.values[column] = o;
  share_sum(at, 0, my.group, my.lane, warp_sum(widen(o) * widen(o)),
            &at.shared.all_sums[at.half][0]);
}

// ---- several rows ----

/// Thread: k rows 32 (lane / 8) + 8 (lane / 4 % 2) + {0 .. 7, 16 .. 23}, columns 16 warp + 4 (lane % 4) +
/// {0 .. 3} of the block's.
template <typename L>
struct TilePlace {
  static constexpr int kColumnsOfWarp = 4 * kColumnsOfThread;
  unsigned lane, own, summed, row_of_k;

  __device__ TilePlace() {
    lane = threadIdx.x % kWarp;
    own = threadIdx.x % L::kHalfThreads / kWarp * kColumnsOfWarp + lane % 4 * kColumnsOfThread;
    summed = own + lane / 4 % 2 * 2 + lane / 8 % 2;  // of sum_over_k()
    row_of_k = lane / 8 * 32 + lane / 4 % 2 * kRowsOfK;
  }
  __device__ unsigned offset(unsigned slice) const {
    return row_of_k * kHeadDim + slice * L::kColumns + own;
  }
};

/// A thread's part of the state of a long run, its rows of k 16 apart.
struct WideTile {
  static constexpr int kApart = 2 * kRowsOfK;
  StateTile parts[2];

  __device__ void load(const float* from) {
    parts[0].load(from);
    parts[1].load(from + kApart * kHeadDim);
  }
  __device__ void store(float* to) const {
    parts[0].store(to);
    parts[1].store(to + kApart * kHeadDim);
  }
  __device__ void multiply(const float (&x)[2][kRowsOfK], float (&sums)[kColumnsOfThread]) const {
    float other[kColumnsOfThread];
    parts[0].multiply(x[0], sums);
    parts[1].multiply(x[1], other);
#pragma unroll
    for (int c = 0; c < kColumnsOfThread; ++c) sums[c] += other[c];
  }
};

/// S^T k and S^T q over the 8 lanes of the same columns, of which each gets one sum: of the column of its
/// bits 2 and 3, of k in the lower 16 lanes and of q in the upper.
__device__ __forceinline__ float sum_over_k(const float (&of_k)[kColumnsOfThread],
                                            const float (&of_q)[kColumnsOfThread], unsigned lane) {
  const float k0 = halve<4>(of_k[0], of_k[2], lane);
  const float k1 = halve<4>(of_k[1], of_k[3], lane);
  const float q0 = halve<4>(of_q[0], of_q[2], lane);
  const float q1 = halve<4>(of_q[1], of_q[3], lane);
  const float k = halve<8>(k0, k1, lane);
  const float q = halve<8>(q0, q1, lane);
  return halve<16>(k, q, lane);
}

/// What the lower lanes of the same columns have, by column.
__device__ __forceinline__ void spread(float mine, float (&d)[kColumnsOfThread]) {
#pragma unroll
  for (int i = 0; i < kColumnsOfThread; ++i) {
    // Segments of the lanes that differ in bits 2, 3 and 4 only.
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x031f, 0xffffffff;"
                 : "=f"(d[i])
                 : "f"(mine), "r"(i / 2 * 4 + i % 2 * 8));
  }
}

/// The rows of a tile, the first being `row` of the run; o in place of v, no sums yet. An owner.
template <typename L>
__device__ __forceinline__ void recur(WideTile& state, const TilePlace<L>& my, const Place<L>& at,
                                      int row, int count,
                                      const typename SharedTiles<L>::Tile& tile) {
  const float* qk = &tile.qk[0][0][my.row_of_k];
  const float4* factors = tile.factors;
  bf16* value = &at.row(row).values[my.summed];
  constexpr int kRowValues = sizeof(SharedRow<L>) / sizeof(bf16);
  constexpr int kApart = WideTile::kApart;
  // Rows of the tile behind which the checkpoint is taken.
  const int kept = at.checkpoint_rows() - row;
  const bool has_q = (my.lane & 16) != 0;
  bool has_o = false;  // of the row before
  float k[2][kRowsOfK], q[2][kRowsOfK];
  const float* q_before = qk;  // of the row before, and there is none at first
  float unit_q = 0.0f;         // likewise
  load_eight(qk + kHeadDim, k[0]);
  load_eight(qk + kHeadDim + kApart, k[1]);
  int i = 0;
#pragma unroll 1
  while (i < count) {
    const int stop = i < kept && kept < count ? kept : count;
#pragma unroll 1
    for (; i < stop; ++i) {
      const float4 f = *factors++;
      const float v = widen(*value);
      float of_k[kColumnsOfThread], of_q[kColumnsOfThread], d[kColumnsOfThread];
      load_eight(q_before, q[0]);
      load_eight(q_before + kApart, q[1]);
      state.multiply(k, of_k);
      state.multiply(q, of_q);
      float same_k[2][kRowsOfK];
      load_again(qk + kHeadDim, same_k[0]);
      load_again(qk + kHeadDim + kApart, same_k[1]);
      q_before = qk;
      qk += kChannelsQk;
      const float sum = sum_over_k(of_k, of_q, my.lane);
      spread(fmaf(f.z, sum, v * f.y), d);
      state.parts[0].decay_by(f.x);
      state.parts[1].decay_by(f.x);
      // Behind the last row: something, unused.
      state.parts[0].add(same_k[0], d);
      load_eight(qk + kHeadDim, k[0]);
      state.parts[1].add(same_k[1], d);
      load_eight(qk + kHeadDim + kApart, k[1]);
      if (has_o) value[-kRowValues] = round_half(sum * unit_q);
      has_o = has_q;
      unit_q = f.w;
      value += kRowValues;
    }
    if (i == kept) state.store(at.state(at.run.checkpoint_slot) + my.offset(at.slice()));
  }
  float of_q[kColumnsOfThread];
  load_eight(q_before, q[0]);
  load_eight(q_before + kApart, q[1]);
  state.multiply(q, of_q);
  const float sum = sum_over_k(of_q, of_q, my.lane);
  if (has_q) value[-kRowValues] = round_half(sum * unit_q);
}

}  // namespace sluice::cuda::gdn
