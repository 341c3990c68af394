#pragma once
// Programmatic dependent launch: a step is a chain of kernels of which the next begins before the last has ended.
//
// Every kernel of the chain calls pdl_wait() once, before it reads what an earlier kernel of the step wrote and before it
// writes anything that another may look at. So when kernel i passes its wait, kernels 0 .. i-1 are done. What no kernel of the step writes (weights,
// recurrent state of this layer, old keys and values, the step block behind the first kernel) may be read earlier.

namespace sluice::cuda {

/// The next kernel may begin on multiprocessors with room.
__device__ __forceinline__ void pdl_launch() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Every kernel before this one is done, and what it wrote is visible.
__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace sluice::cuda
