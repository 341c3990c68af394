// How much scratch the GDN ops of any instruction set take.
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/gdn_scratch.h"

namespace sluice {

size_t cpu_gdn_scratch_bytes(const OpDims& dims) {
  const int64_t floats = dims.num_threads * gdn_chunk_scratch_floats(dims.gdn);
  return static_cast<size_t>(floats) * sizeof(float) + Arena::kAlignment;
}

}  // namespace sluice
