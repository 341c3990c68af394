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

Result<PrefillMath> find_prefill_math(std::string_view name) {
  if (name == "exact") return PrefillMath::kExact;
  if (name == "fp8") return PrefillMath::kFp8;
  return invalid_argument("prefill math '{}' is not known; expected exact or fp8", name);
}

Result<Backend> choose_cuda(std::string_view isa) {
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

Result<Backend> choose_cpu(std::string_view isa) {
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

/// Kernels for activations in e4m3 are wgmma's.
bool has_fp8_math(const Backend& backend, std::string_view device) {
  return device == "cuda" && backend.prefill_form == GdnForm::kChunk;
}

}  // namespace

Result<Backend> choose_backend(std::string_view device, std::string_view isa,
                               std::string_view prefill_math) {
  if (device != "auto" && device != "cpu" && device != "cuda") {
    return invalid_argument("device '{}' is not known; expected auto, cpu or cuda", device);
  }
  SLUICE_ASSIGN_OR_RETURN(const PrefillMath math, find_prefill_math(prefill_math));
  SLUICE_ASSIGN_OR_RETURN(Backend backend, device == "cuda" ? choose_cuda(isa) : choose_cpu(isa));
  if (math == PrefillMath::kFp8 && !has_fp8_math(backend, device)) {
    return unsupported(
        "prefill math fp8 needs a GPU with wgmma (compute capability 9.0) and its kernels; "
        "use exact, or --device cuda without --isa");
  }
  backend.prefill_math = math;
  return backend;
}

}  // namespace sluice
