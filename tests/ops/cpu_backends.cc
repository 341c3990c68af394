#include "tests/ops/op_cases.h"

namespace sluice {

std::vector<const OpTable*> tested_backends() {
  std::vector<const OpTable*> backends;
  for (const CpuIsa isa :
       {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx}) {
    if (Result<const OpTable*> table = cpu_ops(isa); table.ok()) backends.push_back(*table);
  }
  return backends;
}

}  // namespace sluice
