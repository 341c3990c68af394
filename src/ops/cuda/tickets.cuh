#pragma once
// Counters in device memory by which blocks of one grid tell each other that something lies ready.

namespace sluice::cuda {

/// What the warp's threads wrote before is seen by whoever awaits the ticket. All of the warp.
__device__ __forceinline__ void leave_warp_ticket(int* ticket) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(ticket) : "memory");
  }
}

/// All of the warp.
__device__ __forceinline__ void await_warp_tickets(const int* ticket, int count) {
  if (threadIdx.x % 32 == 0) {
    int seen;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(ticket) : "memory");
    } while (seen < count);
  }
  __syncwarp();
}

}  // namespace sluice::cuda
