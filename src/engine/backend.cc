#include "engine/backend.h"

#include <array>

#include "ops/cuda/cuda_ops.h"

namespace sluice {
namespace {

constexpr std::array kIsas = {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16,
                              CpuIsa::kAmx};

constexpr std::string_view kPortable = "portable";

/// Without kernels for prompts the CUDA backend runs them as decode's steps, whose blocks take so many rows; what lies beyond gives other bits.
constexpr int64_t kCudaDecodeRowsMax = 64;
/// With them: enough rows for the GPU's matrix units, few enough for other sessions to get their turn (a third of a second, 27B).
constexpr int64_t kCudaPrefillRows = 4096;

Result<CpuIsa> find_isa(std::string_view name) {
  std::string known = "ref";
  for (const CpuIsa isa : kIsas) {
    if (cpu_isa_name(isa) == name) return isa;
    known += fmt::format(", {}", cpu_isa_name(isa));
  }
  return invalid_argument("instruction set '{}' is not known; expected one of {}", name, known);
}

}  // namespace

Result<Backend> choose_backend(std::string_view device, std::string_view isa) {
  if (device == "cuda") {
    if (!isa.empty() && isa != kPortable) {
      return invalid_argument("'{}' is no choice for the GPU; expected {} or none", isa, kPortable);
    }
    Backend cuda;
    SLUICE_ASSIGN_OR_RETURN(cuda.ops, cuda_ops(isa == kPortable));
    if (cuda_has_prefill()) {
      cuda.prefill_form = GdnForm::kChunk;
      cuda.prefill_rows = kCudaPrefillRows;
    } else {
      cuda.prefill_rows = kCudaDecodeRowsMax;
      cuda.prefill_rows_max = kCudaDecodeRowsMax;
    }
    return cuda;
  }
  if (device != "auto" && device != "cpu") {
    return invalid_argument("device '{}' is not known; expected auto, cpu or cuda", device);
  }
  Backend backend;
  if (isa == "ref") {
    backend.ops = &ref_ops();
    return backend;
  }
  if (isa == kPortable) {
    return invalid_argument("'{}' chooses among the GPU's kernels; it goes with --device cuda",
                            kPortable);
  }
  CpuIsa wanted = best_cpu_isa();
  if (!isa.empty()) {
    SLUICE_ASSIGN_OR_RETURN(wanted, find_isa(isa));
  }
  SLUICE_ASSIGN_OR_RETURN(backend.ops, cpu_ops(wanted));
  return backend;
}

}  // namespace sluice
