#pragma once
// What the parts of gdn_core.cu share: a block's layout and work, its barriers, and small pieces.

#include <cstdint>

#include "ops/cuda/gdn_core.h"
#include "ops/cuda/math.cuh"

namespace sluice::cuda::gdn {

constexpr int kHeadDim = 128;
constexpr float kL2NormEps = 1e-6f;
constexpr float kQueryScale = 0.08838834764831845f;  // 1 / sqrt(kHeadDim)
constexpr int kColumnsOfWarp = 32;
constexpr int kColumnsOfThread = 4;
constexpr int kRowsOfK = 8;                       // of a thread: its state is [8, 4]
constexpr int kWarpsOverK = 4;                    // share 32 columns
constexpr int kChannelsQk = 2 * kHeadDim;         // of a key head
constexpr int kWarpsOfVector = kHeadDim / kWarp;  // q or k, a thread a channel
constexpr int kSums = kHeadDim / kColumnsOfWarp;  // a head's sums of squares
constexpr int kTileRows = 8;
constexpr int kRowsAtOnce = 4;  // of the conv, interleaved
constexpr int kHistory = static_cast<int>(kConvTaps) - 1;
constexpr int kRingColumns = static_cast<int>(kConvRingColumns);
/// Longest run that overwrites no column it reads.
constexpr int kRowsBesideHistory = kRingColumns - kHistory;
constexpr int kVector = 8;  // bf16 of 16 bytes
constexpr uint32_t kAllLanes = 0xffffffffu;

/// Named barriers; 0 is the block's. All threads meet at the first two, but not at one place of the code, as __syncthreads() asks for.
constexpr int kValuesDone = 1;
constexpr int kTileDone = 2;
constexpr int kPartials = 3;  // and, i behind it, that of the warps of columns [32 i, 32 i + 32)

template <int kSlices_>
struct Layout {
  static constexpr int kSlices = kSlices_;
  static constexpr int kColumns = kHeadDim / kSlices;
  static constexpr int kPairsOfLane = kColumns / 2 / kWarp;
  static constexpr int kConsumers = kColumns / kColumnsOfWarp * kWarpsOverK * kWarp;
  static constexpr int kThreads = kConsumers + kWarp;
  static constexpr int kWarps = kThreads / kWarp;
  static_assert(kConsumers >= kChannelsQk && kColumns % (2 * kWarp) == 0);
};

/// What a block keeps of a row.
template <typename L>
struct alignas(16) SharedRow {
  float2 gate;               // exp(g), beta
  float sums[kSums];         // squares of o, by 32 columns; the cluster's blocks write here
  bf16 values[L::kColumns];  // v until the row is done, then o
};

template <typename L>
struct Shared {
  float qk[kTileRows][2][kHeadDim];              // q, k of the tile, not normalised
  float squares[kTileRows][2][kWarpsOfVector];   // their sums, by 32 channels
  float partials[2][kWarpsOverK][L::kColumns];   // S^T k, by row % 2
  float o[kTileRows][kWarpsOverK][L::kColumns];  // S^T q of the tile, in four parts
  bf16 raw[kTileRows][2][kHeadDim];              // q's and k's inputs of the next tile
  bool writes_qk;                                // of a run that needs tickets
  alignas(16) uint64_t all_sums;                 // mbarrier: the sums of all rows have come
  SharedRow<L> rows[1];                          // as many as the step has
};
template <typename L>
constexpr size_t shared_bytes(int rows) {
  return sizeof(Shared<L>) + static_cast<size_t>(rows - 1) * sizeof(SharedRow<L>);
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// `barrier` is set up for `bytes` from the cluster. One thread; the cluster's barrier comes behind it.
__device__ __forceinline__ void sums_init(uint64_t* barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
  const auto at = shared_address(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
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

/// A block's work. Everything of a run lies within 2^31 elements of its first, so that offsets are 32
/// bits wide.
struct Place {
  int num_rows, position;
  int checkpoint_rows;  // rows behind which the checkpoint is taken; 0: none
  unsigned key_head, head, slice;
  const bf16 *qkv, *z, *a, *b;  // of the run's first row
  bf16 *core, *ring, *checkpoint_ring;
  uint16_t* operands;
  float *state, *checkpoint;  // of the head
  int* ticket;
  unsigned channels, v_channel;  // v_channel: the block's first
  bool is_first;                 // block of its key head

  __device__ unsigned column(int at) const {
    return static_cast<unsigned>(at) % kRingColumns * channels;
  }
};

}  // namespace sluice::cuda::gdn
