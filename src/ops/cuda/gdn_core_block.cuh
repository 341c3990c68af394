#pragma once
// What the parts of gdn_core.cu share: a block's layout and work, its barriers, and small pieces.

#include <cstdint>

#include "ops/cuda/gdn_core.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::gdn {

constexpr int kHeadDim = 128;
constexpr float kL2NormEps = 1e-6f;
constexpr float kQueryScale = 0.08838834764831845f;  // 1 / sqrt(kHeadDim)
constexpr int kColumnsOfThread = 4;
constexpr int kRowsOfK = 8;                // of a thread: its state is [8, 4]
constexpr int kChannelsQk = 2 * kHeadDim;  // of a key head
constexpr int kSumChannels = 32;           // squares are summed by so many channels or columns
constexpr int kSums = kHeadDim / kSumChannels;
constexpr int kHistory = static_cast<int>(kConvTaps) - 1;
constexpr int kRingColumns = static_cast<int>(kConvRingColumns);
/// Longest run that overwrites no column it reads.
constexpr int kRowsBesideHistory = kRingColumns - kHistory;
constexpr int kVector = 8;  // bf16 of 16 bytes
constexpr uint32_t kAllLanes = 0xffffffffu;

/// A block has kHalves_ parts that know nothing of each other, each with a run of its own. With two of
/// them a multiprocessor has room for one block: the blocks of a single run spread over as many as they
/// are, where smaller ones lie two by two. kRowsMax_: rows of the step at most.
template <int kSlices_, int kRowsMax_, int kHalves_>
struct Layout {
  static constexpr int kSlices = kSlices_;
  static constexpr int kRowsMax = kRowsMax_;
  static constexpr int kHalves = kHalves_;
  static constexpr int kColumns = kHeadDim / kSlices;
  static constexpr int kPairsOfLane = kColumns / 2 / kWarp;
  static constexpr int kGroups = kColumns / kSumChannels;
  /// Of a half: with one row a thread has [8, 4] of the state.
  static constexpr int kHalfThreads = kColumns * kHeadDim / (kRowsOfK * kColumnsOfThread);
  static constexpr int kHalfWarps = kHalfThreads / kWarp;
  static constexpr int kThreads = kHalves * kHalfThreads;

  /// Rows that a run of several takes at a time.
  static constexpr int kTileRows = kRowsMax < 16 ? kRowsMax : 16;
  static constexpr int kTilesMax = kRowsMax / kTileRows;
  /// The first warps of a half, which then own the state.
  static constexpr int kOwners = kColumns / 16;
  static constexpr int kHelpers = kHalfWarps - kOwners;
  static constexpr int kRowsOfHelper = (kTileRows + kHelpers - 1) / kHelpers;  // of the norm
  static_assert(kHalfThreads >= kChannelsQk && kColumns % (2 * kWarp) == 0);
};

/// Named barriers of half 0; those of half 1 are behind each. Threads meet at different places of the code,
/// which __syncthreads() does not allow.
constexpr int kHalf = 1;
constexpr int kHelpersOnly = 3;  // all but the owners of the state
constexpr int kPartials = 5;     // of the first 32 columns

/// What a half keeps of a row.
template <typename L>
struct alignas(16) SharedRow {
  float sums[kSums];         // squares of o, by 32 columns; the cluster's blocks write here
  float2 gate;               // exp(g), beta
  bf16 values[L::kColumns];  // v until the row is done, then o
};

constexpr int kWarpsOverK = 4;  // share 32 columns of a run of one row

/// Of a run of one row.
template <typename L>
struct SharedStep {
  float qk[2][kHeadDim];                     // q, k, not normalised
  float squares[2][kSums];                   // their sums, by 32 channels
  float partials[kWarpsOverK][L::kColumns];  // S^T k
  float o[kWarpsOverK][L::kColumns];         // S^T q
};

/// Of a run of several rows.
template <typename L>
struct SharedTiles {
  static constexpr int kRows = L::kTileRows;
  static constexpr int kChannels = kChannelsQk + L::kColumns;  // q, k and the block's v
  static constexpr int kBuffers = L::kRowsMax > kRows ? 2 : 1;
  struct Tile {
    float qk[kRows][2][kHeadDim];
    float squares[kRows][2][kSums];
    float4 factors[kRows];  // see factors_of()
  };
  Tile tiles[kBuffers];
  bf16 raw[kHistory + kRows][kChannels];  // inputs, from three rows before the next tile on
};

/// Of a half. Halves do not meet, and one may have a run of one row while the other has several: each has a place of its own for either.
template <typename L>
union SharedWork {
  SharedStep<L> step;
  SharedTiles<L> several;
};

template <typename L>
struct Shared {
  SharedWork<L> work[L::kHalves];
  alignas(16) uint64_t all_sums[L::kHalves][L::kTilesMax];  // mbarriers: a tile's sums have come
  bool writes_qk[L::kHalves];                               // of a run that needs tickets
  SharedRow<L> rows[1];  // as many as the step has: the block's runs behind one another
};
template <typename L>
constexpr size_t shared_bytes(int rows) {
  return sizeof(Shared<L>) + static_cast<size_t>(rows - 1) * sizeof(SharedRow<L>);
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// One thread; the cluster's barrier comes behind it.
__device__ __forceinline__ void sums_init(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/// `bytes` are to come from the cluster, or have come already. The same thread, once.
__device__ __forceinline__ void sums_expect(uint64_t* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void sums_wait(uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  const auto at = shared_address(barrier);
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(at)
        : "memory");
  }
#endif
}
/// *to = value in block `rank` of the cluster and counted by its barrier; both addresses are this
/// block's.
__device__ __forceinline__ void sums_send(float* to, uint64_t* barrier, unsigned rank,
                                          float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 to, barrier;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 barrier, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [to], %3, [barrier];\n}" ::"r"(
          shared_address(to)),
      "r"(shared_address(barrier)), "r"(rank), "r"(__float_as_uint(value))
      : "memory");
#endif
}

__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// Stays where it is written, so that it is on its way before pdl_wait().
__device__ __forceinline__ float4 load_state(const float* from) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// 16 bytes to shared memory on their way; zeros where there is nothing to read.
__device__ __forceinline__ void cp_async(void* to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ __forceinline__ void prefetch_l1(const void* from) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

/// One 16-byte store, which the compiler otherwise takes apart.
__device__ __forceinline__ void store_state(float* to, const float (&v)[kColumnsOfThread]) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3])
               : "memory");
}

/// narrow(), in one instruction.
__device__ __forceinline__ bf16 round_half(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t load_pair(const bf16* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

/// sigmoid() and silu() of math.cuh, bit for bit down to x = -86 (below, 2^-125 stands for less),
/// without the branches of a division.
__device__ __forceinline__ float sigmoid_unbranched(float x) {
  const float y = fminf(1.0f + expf(-x), 0x1p125f);
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(y));
  return fmaf(r, fmaf(-y, r, 1.0f), r);
}
__device__ __forceinline__ float silu_unbranched(float x) {
  return x * sigmoid_unbranched(x);
}
/// 1 / sqrt(x) to an ulp, for normal x.
__device__ __forceinline__ float inverse_root(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return fmaf(0.5f * r, fmaf(-x * r, r, 1.0f), r);
}

/// Sums of kRows values over the lanes that differ in the bits of kFirst and below, added by the highest bit
/// first; a power of two of rows, each with its own sum. Halves the rows with each bit while there are several: x[0] is
/// the sum of the row that is returned.
template <int kRows, int kFirst>
__device__ __forceinline__ int sum_rows(float* x, unsigned lane) {
  if constexpr (kFirst == 0) {
    static_assert(kRows == 1);
    return 0;
  } else if constexpr (kRows == 1) {
    x[0] += __shfl_xor_sync(kAllLanes, x[0], kFirst);
    return sum_rows<1, kFirst / 2>(x, lane);
  } else {
    constexpr int kHalf = kRows / 2;
    const bool upper = (lane & kFirst) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float given = __shfl_xor_sync(kAllLanes, upper ? x[i] : x[i + kHalf], kFirst);
      x[i] = (upper ? x[i + kHalf] : x[i]) + given;
    }
    return (upper ? kHalf : 0) + sum_rows<kHalf, kFirst / 2>(x, lane);
  }
}

/// g = -exp(A_log) softplus(a + dt_bias). The softplus takes the sum's rounding error along, so that g is good to a few fp32 ulps also where softplus is small.
__device__ __forceinline__ float log_decay(float a, float dt_bias, float exp_A) {
  const float dt = a + dt_bias;
  const float part = dt - a;
  const float lost = (a - (dt - part)) + (dt_bias - part);
  const float e = expf(dt);
  return -exp_A * (dt > 20.0f ? dt : log1pf(fmaf(e, lost, e)));
}
__device__ __forceinline__ float beta_of(float b) {
  return widen(round_half(sigmoid_unbranched(b)));
}
/// exp(g) and beta.
__device__ __forceinline__ float2 gates_of(float a, float b, float dt_bias, float exp_A) {
  return make_float2(expf(log_decay(a, dt_bias, exp_A)), beta_of(b));
}

/// decay, and what the row's d and o are made of: d = v * weight + S^T k * scale is beta (v - S^T k) by
/// the factor of the k it will be multiplied with; o = S^T q * unit_q.
struct Factors {
  float decay, weight, scale, unit_q;
};
__device__ __forceinline__ float unit_of(const float (&squares)[kSums]) {
  const float4 s = *reinterpret_cast<const float4*>(squares);
  return inverse_root(((s.x + s.y) + (s.z + s.w)) + kL2NormEps);
}
__device__ __forceinline__ Factors factors_of(float2 gate, const float (&squares)[2][kSums]) {
  const float unit_k = unit_of(squares[1]);
  const float weight = gate.y * unit_k;
  return {gate.x, weight, -(gate.x * unit_k) * weight, unit_of(squares[0]) * kQueryScale};
}

/// A run's work of a half. What is made of the run is made anew at each use: registers are short.
template <typename L>
struct Place {
  const GdnCore& args;
  Shared<L>& shared;
  const int half;  // which of the block's runs
  const DeviceRun run;
  const int first_row;  // in shared.rows

  __device__ SharedRow<L>& row(int i) const { return shared.rows[first_row + i]; }
  __device__ int num_rows() const { return run.num_rows; }
  /// The grid: blocks of a key head, key heads, runs.
  __device__ static unsigned slice() { return blockIdx.x % L::kSlices; }
  __device__ static unsigned key_head() { return blockIdx.y; }
  __device__ static unsigned head() { return (blockIdx.y * gridDim.x + blockIdx.x) / L::kSlices; }
  /// The first block of its key head?
  __device__ static bool is_first() { return blockIdx.x == 0; }
  /// Rows behind which the checkpoint is taken; 0: none.
  __device__ int checkpoint_rows() const {
    constexpr int kChunk = static_cast<int>(kGdnChunk);
    if (run.checkpoint_slot == kNoSlot) return 0;
    return max(0, (run.position + run.num_rows) / kChunk * kChunk - run.position);
  }

  /// First channel of q (0) or k (1), and of the block's v.
  __device__ unsigned qk_channel(unsigned which) const {
    return (which * args.num_k_heads + key_head()) * kHeadDim;
  }
  __device__ unsigned v_channel() const {
    return (2 * args.num_k_heads + head()) * kHeadDim + slice() * L::kColumns;
  }
  /// The block's first of num_v_heads * 128 values.
  __device__ unsigned value() const { return head() * kHeadDim + slice() * L::kColumns; }

  /// A row of the run, of what has rows of the step.
  template <typename T>
  __device__ T* row_of(const Rows<T>& x, int row) const {
    return x.data + (run.first_row + row) * static_cast<int>(x.stride);
  }
  __device__ float* state(int slot) const {
    return args.state.data + slot * args.state.slot_stride + head() * kHeadDim * kHeadDim;
  }
  /// The conv ring's column of a position.
  __device__ bf16* ring(int slot, int position) const {
    return args.conv.data + slot * args.conv.slot_stride +
           static_cast<unsigned>(position) % kRingColumns *
               static_cast<unsigned>(args.conv.num_channels);
  }
  __device__ int* ticket() const {
    return args.tickets + (blockIdx.z * L::kHalves + half) * args.num_k_heads + key_head();
  }
};

}  // namespace sluice::cuda::gdn
