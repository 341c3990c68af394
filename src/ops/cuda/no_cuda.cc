// In the CUDA backend's place where SLUICE_CUDA is off or there was no nvcc.
#include "ops/cuda/cuda_ops.h"

namespace sluice {

Result<const OpTable*> cuda_ops(bool) {
  return unsupported("--device cuda: this build has no CUDA backend; use --device cpu");
}

bool cuda_has_prefill() {
  return false;
}

}  // namespace sluice
