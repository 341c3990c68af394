#include "ops/cuda/projections.h"

#include <algorithm>
#include <array>

#include "ops/cuda/device.h"
#include "ops/cuda/gemm_fp8.h"
#include "ops/cuda/gemm_prefill.h"
#include "ops/cuda/gemm_sm90.h"
#include "ops/cuda/skinny.h"

namespace sluice::cuda {
namespace {

constexpr int kWgmmaCapability = 90;  // wgmma is an instruction of this capability alone
/// Rows up to which the mma.sync kernels are the faster ones (bench/results/h200/projections.md).
constexpr int kFewRows = kSkinnyRowsMax;

bool is_portable = false;

bool has_wgmma() {
  return device().compute_capability == kWgmmaCapability && !is_portable;
}
bool uses_gemm(const ProjectionInput& x) {
  return x.is_prefill || (has_wgmma() && x.num_rows > kFewRows);
}
cudaError_t launch_gemm(bool is_prefill, const Gemm& gemm, cudaStream_t stream) {
  return is_prefill ? launch_gemm_prefill(gemm, stream) : launch_gemm_skinny(gemm, stream);
}

/// Decode's wgmma stores two values at a time.
bool is_stored(const ProjectionInput& x, int64_t stride) {
  return x.is_prefill || stride % 2 == 0;
}

SkinnyMachine machine_of(const ProjectionScratch& scratch) {
  return {device().num_sms, device().smem_bytes_max, scratch.range_flag};
}

bool takes_fp8(const ProjectionInput& x, const PackedWeight& weight) {
  return x.fp8.values != nullptr && weight.scales != nullptr;
}

/// What f16 weights read of an input that there may be in FP8: nothing, as there are none; operands or values in natural order beside FP8; operands alone.
enum class F16Order { kNone, kOperands, kNatural, kAlone };

/// f16 weights that launch_gemm_fp8() takes along.
bool fits_beside_fp8(const ProjectionOutput& output) {
  return output.weight.scales == nullptr && output.weight.num_out <= kFp8SideRows &&
         output.weight.num_out % 2 == 0 && output.stride % 2 == 0;
}

F16Order f16_order(const ProjectionInput& x, std::span<const ProjectionOutput> outputs) {
  const auto is_fp8 = [&](const ProjectionOutput& o) { return takes_fp8(x, o.weight); };
  if (std::ranges::none_of(outputs, is_fp8)) return F16Order::kAlone;
  if (std::ranges::all_of(outputs, is_fp8)) return F16Order::kNone;
  const bool are_few = std::ranges::all_of(
      outputs, [&](const ProjectionOutput& o) { return is_fp8(o) || fits_beside_fp8(o); });
  // Values that lie as operands stay so.
  return x.values != nullptr && are_few ? F16Order::kNatural : F16Order::kOperands;
}

cudaError_t prepare_fp8(const ProjectionInput& x, F16Order order, const ProjectionScratch& scratch,
                        cudaStream_t stream) {
  if (x.has_fp8) return cudaSuccess;
  if (x.values == nullptr) {
    return launch_fp8_requantise(
        {x.operands, x.num_cols, x.num_rows, x.num_cols, x.fp8, scratch.range_flag}, stream);
  }
  Fp8OperandsArgs args = {};
  args.values = x.values;
  args.stride = x.stride;
  args.num_rows = x.num_rows;
  args.num_cols = x.num_cols;
  args.norm_weight = x.norm_weight;
  args.eps = x.eps;
  args.to = x.fp8;
  if (order != F16Order::kNone) args.f16_operands = x.operands;
  args.f16_in_order = order == F16Order::kNatural;
  args.out_stride = x.num_cols;
  args.range_flag = scratch.range_flag;
  return launch_fp8_operands(args, stream);
}

/// Makes the operands of values.
cudaError_t prepare(const ProjectionInput& x, F16Order order, const ProjectionScratch& scratch,
                    cudaStream_t stream) {
  if (order != F16Order::kAlone) return prepare_fp8(x, order, scratch, stream);
  if (x.values == nullptr) return cudaSuccess;
  OperandsArgs args = {};
  args.values = x.values;
  args.stride = x.stride;
  args.row_list = x.row_list;
  args.num_rows = x.num_rows;
  args.num_cols = x.num_cols;
  args.norm_weight = x.norm_weight;
  args.eps = x.eps;
  args.operands = x.operands;
  args.out_stride = x.num_cols;
  args.range_flag = scratch.range_flag;
  return launch_operands(args, stream);
}

Gemm gemm_of(const ProjectionInput& x, GemmEpilogue epilogue, const ProjectionScratch& scratch) {
  Gemm gemm = {};
  gemm.x = x.operands;
  gemm.x_stride = x.num_cols;
  gemm.num_rows = x.num_rows;
  gemm.num_in = x.num_cols;
  gemm.epilogue = epilogue;
  gemm.range_flag = scratch.range_flag;
  gemm.workspace = {scratch.partials, scratch.tickets};
  return gemm;
}

GemmFp8 gemm_fp8_of(const ProjectionInput& x, GemmEpilogue epilogue,
                    const ProjectionScratch& scratch) {
  GemmFp8 gemm = {};
  gemm.workspace = {scratch.partials, scratch.tickets};
  gemm.x = x.fp8;
  gemm.num_rows = x.num_rows;
  gemm.num_in = x.num_cols;
  gemm.epilogue = epilogue;
  gemm.range_flag = scratch.range_flag;
  return gemm;
}

GemmSegment segment_of(const ProjectionOutput& output) {
  return {output.weight, output.out, output.stride};
}

/// The outputs whose weights are FP8, and the others beside them or behind them.
cudaError_t project_fp8(const ProjectionInput& x, F16Order order,
                        std::span<const ProjectionOutput> outputs, const ProjectionScratch& scratch,
                        cudaStream_t stream) {
  GemmFp8 gemm = gemm_fp8_of(x, GemmEpilogue::kStore, scratch);
  Gemm exact = gemm_of(x, GemmEpilogue::kStore, scratch);
  for (const ProjectionOutput& output : outputs) {
    if (takes_fp8(x, output.weight)) {
      gemm.segments[gemm.num_segments++] = segment_of(output);
    } else {
      exact.segments[exact.num_segments++] = segment_of(output);
    }
  }
  if (order == F16Order::kNatural) {
    gemm.exact_x = x.operands;
    gemm.exact_stride = x.num_cols;
    std::copy_n(exact.segments, exact.num_segments, gemm.segments + gemm.num_segments);
    gemm.num_segments += exact.num_segments;
    exact.num_segments = 0;
  }
  if (gemm.num_segments > 0) {
    if (const cudaError_t error = launch_gemm_fp8(gemm, stream); error != cudaSuccess) return error;
  }
  return exact.num_segments > 0 ? launch_gemm_prefill(exact, stream) : cudaSuccess;
}

/// Calls fn(input, first row) for slices of rows that one launch takes; weights stream once a slice.
template <typename Fn>
cudaError_t for_slices(const ProjectionInput& x, Fn&& fn) {
  for (int first = 0; first < x.num_rows; first += kSkinnyRowsMax) {
    SkinnyInput input;
    input.num_rows = std::min(kSkinnyRowsMax, x.num_rows - first);
    input.operands = x.operands + static_cast<int64_t>(first) * x.num_cols;
    input.stride = x.num_cols;
    if (const cudaError_t error = fn(input, first); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace

size_t projection_partial_bytes() {
  return has_prefill_kernels()
             ? std::max({kGemmPartialBytes, kGemmPrefillPartialBytes, kGemmFp8PartialBytes})
             : kGemmPartialBytes;
}
size_t projection_ticket_bytes() {
  return kGemmTickets * sizeof(int);
}

cudaError_t project(const ProjectionInput& x, std::span<const ProjectionOutput> outputs,
                    const ProjectionScratch& scratch, cudaStream_t stream) {
  if (outputs.size() > static_cast<size_t>(kSkinnyOutputsMax)) return cudaErrorInvalidValue;
  const F16Order order = f16_order(x, outputs);
  if (const cudaError_t error = prepare(x, order, scratch, stream); error != cudaSuccess) {
    return error;
  }
  if (x.fp8.values != nullptr) return project_fp8(x, order, outputs, scratch, stream);
  const bool all_stored =
      std::all_of(outputs.begin(), outputs.end(),
                  [&](const ProjectionOutput& o) { return is_stored(x, o.stride); });
  if (uses_gemm(x) && all_stored) {
    Gemm gemm = gemm_of(x, GemmEpilogue::kStore, scratch);
    gemm.num_segments = static_cast<int>(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      gemm.segments[i] = segment_of(outputs[i]);
    }
    return launch_gemm(x.is_prefill, gemm, stream);
  }
  return for_slices(x, [&](const SkinnyInput& input, int first) {
    std::array<SkinnyOutput, kSkinnyOutputsMax> sliced = {};
    for (size_t i = 0; i < outputs.size(); ++i) {
      sliced[i] = {outputs[i].weight, outputs[i].out + first * outputs[i].stride,
                   outputs[i].stride};
    }
    return launch_skinny_linear(machine_of(scratch), input, sliced.data(),
                                static_cast<int>(outputs.size()), stream);
  });
}

cudaError_t project_residual(const ProjectionInput& x, const ProjectionOutput& output,
                             const ProjectionScratch& scratch, cudaStream_t stream) {
  const F16Order order = f16_order(x, {&output, 1});
  if (const cudaError_t error = prepare(x, order, scratch, stream); error != cudaSuccess) {
    return error;
  }
  if (takes_fp8(x, output.weight)) {
    GemmFp8 gemm = gemm_fp8_of(x, GemmEpilogue::kResidual, scratch);
    gemm.num_segments = 1;
    gemm.segments[0] = segment_of(output);
    return launch_gemm_fp8(gemm, stream);
  }
  if (uses_gemm(x) && is_stored(x, output.stride)) {
    Gemm gemm = gemm_of(x, GemmEpilogue::kResidual, scratch);
    gemm.num_segments = 1;
    gemm.segments[0] = segment_of(output);
    return launch_gemm(x.is_prefill, gemm, stream);
  }
  return for_slices(x, [&](const SkinnyInput& input, int first) {
    const SkinnyOutput sliced = {output.weight, output.out + first * output.stride, output.stride};
    return launch_skinny_residual(machine_of(scratch), input, sliced, stream);
  });
}

bool gates_in_fp8(const ProjectionInput& x, const GateUpOutput& output) {
  return takes_fp8(x, output.gate) && takes_fp8(x, output.up) && output.fp8.values != nullptr &&
         output.values == nullptr;
}

cudaError_t project_gate_up(const ProjectionInput& x, const GateUpOutput& output,
                            const ProjectionScratch& scratch, cudaStream_t stream) {
  const bool is_fp8 = gates_in_fp8(x, output);
  const F16Order order = is_fp8 ? F16Order::kNone : F16Order::kAlone;
  if (const cudaError_t error = prepare(x, order, scratch, stream); error != cudaSuccess) {
    return error;
  }
  if (is_fp8) {
    GemmFp8 gemm = gemm_fp8_of(x, GemmEpilogue::kGateUp, scratch);
    gemm.num_segments = 2;
    gemm.segments[0].weight = output.gate;
    gemm.segments[1].weight = output.up;
    gemm.operand = output.fp8;
    return launch_gemm_fp8(gemm, stream);
  }
  const int num_out = output.gate.num_out;
  if (uses_gemm(x) && num_out % kPackBlock == 0 && is_stored(x, output.stride)) {
    Gemm gemm = gemm_of(x, GemmEpilogue::kGateUp, scratch);
    gemm.num_segments = 2;
    gemm.segments[0] = {output.gate, output.values, output.stride};
    gemm.segments[1] = {output.up, nullptr, 0};
    gemm.operand = output.operands;
    gemm.operand_stride = num_out;
    return launch_gemm(x.is_prefill, gemm, stream);
  }
  return for_slices(x, [&](const SkinnyInput& input, int first) {
    SkinnyGateUp sliced = {};
    sliced.gate = output.gate;
    sliced.up = output.up;
    sliced.operands = output.operands + static_cast<int64_t>(first) * num_out;
    sliced.operands_stride = num_out;
    if (output.values != nullptr) sliced.values = output.values + first * output.stride;
    sliced.values_stride = output.stride;
    return launch_skinny_gate_up(machine_of(scratch), input, sliced, stream);
  });
}

void use_portable_projections(bool portable) {
  is_portable = portable;
}
bool has_prefill_kernels() {
  return has_wgmma();
}

}  // namespace sluice::cuda
