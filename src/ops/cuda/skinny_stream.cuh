#pragma once
// A warp's private ring in shared memory, filled by the copy engine (sm_90) or by the lanes' own asynchronous copies.
//
// One warp is both producer and consumer, so a slot needs a full barrier and no empty one: the warp that has read a slot refills it.

#include <cstdint>

#include "ops/cuda/math.cuh"

namespace sluice::cuda {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred done;\n"
      "WAIT_%=:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n@!done bra WAIT_%=;\n}" ::"r"(
          barrier),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{\n.reg .pred done;\n"
      "WAIT_%=:\nmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n@!done bra WAIT_%=;\n}" ::
          "r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

/// Weights pass once: they should not push activations out of the L2.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Barriers of one warp, each for one copy at a time.
__device__ __forceinline__ void init_warp_barriers(uint32_t barriers, int count) {
#if __CUDA_ARCH__ >= 900
  constexpr uint32_t kArrivals = 1;  // a lane that announces the bytes
#else
  constexpr uint32_t kArrivals = 32;  // every lane, behind its copies
#endif
  if (threadIdx.x % 32 == 0) {
#pragma unroll 1  // cold code, ahead of the first copy
    for (int i = 0; i < count; ++i) barrier_init(barriers + 8 * i, kArrivals);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  }
  __syncwarp();
}

/// All lanes call it: copies that follow complete `barrier` when `num_bytes` have come.
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int num_bytes) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x % 32 == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes)
                 : "memory");
  }
  __syncwarp();
#endif
}
/// All lanes call it behind their copies.
__device__ __forceinline__ void copies_issued(uint32_t barrier) {
#if __CUDA_ARCH__ < 900
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}

/// What this thread wrote to shared memory comes before what copies write there.
__device__ __forceinline__ void order_before_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Blocks of a cluster of two: the barriers of both are set up behind pair_wait().
__device__ __forceinline__ void pair_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void pair_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// num_rows rows of num_bytes each, `from_stride` bytes apart, to rows `to_stride` bytes apart. 16-byte multiples.
template <typename RowStart>
__device__ __forceinline__ void copy_rows(uint32_t to, int to_stride, int num_bytes, int num_rows,
                                          uint32_t barrier, RowStart row_start) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  expect_bytes(barrier, num_rows * num_bytes);
#if __CUDA_ARCH__ >= 900
  if (lane < num_rows) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to + lane * to_stride),
        "l"(row_start(lane)), "r"(num_bytes), "r"(barrier)
        : "memory");
  }
#else
  for (int m = 0; m < num_rows; ++m) {
    const uint8_t* from = reinterpret_cast<const uint8_t*>(row_start(m));
    for (int i = lane * 16; i < num_bytes; i += 32 * 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + m * to_stride + i),
                   "l"(from + i)
                   : "memory");
    }
  }
#endif
  copies_issued(barrier);
}

/// copy_rows() of the same rows by both blocks of a cluster, to the same places: each sends every second row to both.
template <typename RowStart>
__device__ __forceinline__ void copy_rows_to_pair(uint32_t to, int to_stride, int num_bytes,
                                                  int num_rows, uint32_t barrier,
                                                  RowStart row_start) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr uint16_t kBoth = 3;
  expect_bytes(barrier, num_rows * num_bytes);
  if (lane < num_rows && lane % 2 == static_cast<int>(blockIdx.x) % 2) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to + lane * to_stride),
        "l"(row_start(lane)), "r"(num_bytes), "r"(barrier), "h"(kBoth)
        : "memory");
  }
#else
  copy_rows(to, to_stride, num_bytes, num_rows, barrier, row_start);
#endif
}

/// Slots behind one another, each with a barrier, used in order, round and round. They may differ in size if every round is like the first.
class WarpRing {
 public:
  /// `slots` and `barriers` (initialised, one a slot) are this warp's own.
  __device__ WarpRing(uint8_t* slots, uint64_t* barriers, int num_slots)
      : slots_(slots),
        slots_address_(shared_address(slots)),
        barriers_(shared_address(barriers)),
        num_slots_(num_slots),
        policy_(evict_first_policy()) {}

  /// Fills the next slot, of slot_bytes, from one or two places; b_bytes may be 0. Pre: the slot is free.
  __device__ __forceinline__ void issue(const uint8_t* a, int a_bytes, const uint8_t* b,
                                        int b_bytes, int slot_bytes) {
    const uint32_t barrier = barriers_ + 8 * issue_slot_;
    const uint32_t to = slots_address_ + issue_offset_;
#if __CUDA_ARCH__ >= 900
    if (lane() == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier),
                   "r"(a_bytes + b_bytes)
                   : "memory");
      copy(to, a, a_bytes, barrier);
      if (b_bytes > 0) copy(to + a_bytes, b, b_bytes, barrier);
    }
#else
    copy(to, a, a_bytes, barrier);
    copy(to + a_bytes, b, b_bytes, barrier);
    copies_issued(barrier);
#endif
    issue_offset_ += slot_bytes;
    if (++issue_slot_ == num_slots_) issue_slot_ = issue_offset_ = 0;
  }

  /// Asks the same of the L2, which a later issue() finds there.
  __device__ __forceinline__ static void ask_l2(const uint8_t* a, int a_bytes, const uint8_t* b,
                                                int b_bytes) {
#if __CUDA_ARCH__ >= 900
    if (lane() == 0) {
      prefetch(a, a_bytes);
      if (b_bytes > 0) prefetch(b, b_bytes);
    }
#endif
  }

  /// Behind the i-th issue of the first round, i > 0: the slot before has arrived.
  __device__ __forceinline__ void await_issued_before(int i) const {
    barrier_wait(barriers_ + 8 * (i - 1), 0);
  }
  /// The oldest issued slot, once it has arrived.
  __device__ __forceinline__ const uint8_t* acquire() {
    barrier_wait(barriers_ + 8 * read_slot_, read_parity_);
    return slots_ + read_offset_;
  }
  /// Every lane has read the acquired slot, of slot_bytes: it may be issued again.
  __device__ __forceinline__ void release(int slot_bytes) {
    __syncwarp();
    read_offset_ += slot_bytes;
    if (++read_slot_ == num_slots_) {
      read_slot_ = read_offset_ = 0;
      read_parity_ ^= 1;
    }
  }

 private:
#if __CUDA_ARCH__ >= 900
  __device__ __forceinline__ static void prefetch(const uint8_t* from, int num_bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(num_bytes)
                 : "memory");
  }
  __device__ __forceinline__ void copy(uint32_t to, const uint8_t* from, int num_bytes,
                                       uint32_t barrier) const {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(from), "r"(num_bytes), "r"(barrier), "l"(policy_)
        : "memory");
  }
#else
  __device__ __forceinline__ void copy(uint32_t to, const uint8_t* from, int num_bytes,
                                       uint32_t) const {
    for (int i = lane() * 16; i < num_bytes; i += 32 * 16) {
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to + i),
                   "l"(from + i), "l"(policy_)
                   : "memory");
    }
  }
#endif
  __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }

  uint8_t* slots_;
  uint32_t slots_address_;
  uint32_t barriers_;
  int num_slots_;
  uint64_t policy_;
  int issue_slot_ = 0;
  int issue_offset_ = 0;
  int read_slot_ = 0;
  int read_offset_ = 0;
  uint32_t read_parity_ = 0;
};

}  // namespace sluice::cuda
