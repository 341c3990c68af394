#pragma once
// Counters in device memory by which blocks of one grid tell each other that something lies ready.

namespace sluice::cuda {

/// What was written before by this thread, and by those that met it at a barrier, is seen by whoever awaits the ticket.
__device__ __forceinline__ void leave_ticket(int* ticket) {
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(ticket) : "memory");
}
/// Others see it behind a barrier.
__device__ __forceinline__ void await_tickets(const int* ticket, int count) {
  int seen;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(ticket) : "memory");
  } while (seen < count);
}

/// The same of all of a warp.
__device__ __forceinline__ void leave_warp_ticket(int* ticket) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) leave_ticket(ticket);
}
__device__ __forceinline__ void await_warp_tickets(const int* ticket, int count) {
  if (threadIdx.x % 32 == 0) await_tickets(ticket, count);
  __syncwarp();
}

}  // namespace sluice::cuda
