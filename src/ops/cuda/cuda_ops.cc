// The CUDA backend's table.
#include "ops/cuda/cuda_ops.h"

#include "ops/cuda/device.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/step_block.h"

namespace sluice {
namespace {

Status check_equal(std::string_view what, int64_t value, int64_t wanted) {
  if (value == wanted) return Status();
  return unsupported("{} is {}; the CUDA backend has kernels for {}", what, value, wanted);
}

Status check_multiple(std::string_view what, int64_t value, int64_t of) {
  if (value > 0 && value % of == 0) return Status();
  return unsupported("{} is {}; the CUDA backend's linears read rows in steps of {}", what, value,
                     of);
}

Status check_shape(const OpDims& dims) {
  constexpr int64_t kStep = 16;
  SLUICE_RETURN_IF_ERROR(ref_ops().check_shape(dims));
  SLUICE_RETURN_IF_ERROR(check_multiple("hidden_size", dims.hidden, kStep));
  SLUICE_RETURN_IF_ERROR(check_multiple("intermediate_size", dims.intermediate, kStep));
  SLUICE_RETURN_IF_ERROR(check_equal("head_dim", dims.attention.head_dim, 256));
  SLUICE_RETURN_IF_ERROR(check_equal("linear_key_head_dim", dims.gdn.head_k_dim, 128));
  return check_equal("linear_value_head_dim", dims.gdn.head_v_dim, 128);
}

template <typename T>
cuda::Rows<T> rows_of(const MatView<T>& view) {
  return {view.data, view.num_rows, view.num_cols, view.stride};
}

cuda::Weight weight_of(const WeightView& w) {
  return {w.data, w.scales, w.num_out, w.num_in, w.scale_cols()};
}

cudaStream_t stream() {
  return cuda::device().stream;
}

/// The rows of `runs` are those that begin_step brought over.
void check_step(std::span<const RowRun> runs, const OpContext& context) {
  SLUICE_CHECK_EQ(static_cast<int64_t>(runs.size()), context.step.num_runs);
}

void embed(const EmbedArgs& args, OpContext& context) {
  SLUICE_CHECK_EQ(args.out.num_rows, context.step.num_rows);
  SLUICE_CUDA_CHECK(
      cuda::launch_embed(rows_of(args.table), context.step, rows_of(args.out), stream()));
}

void rms_norm(const RmsNormArgs& args, OpContext&) {
  SLUICE_CUDA_CHECK(cuda::launch_rms_norm(rows_of(args.x), args.weight.data(), args.eps,
                                          rows_of(args.out), stream()));
}

void gated_rms_norm(const GatedRmsNormArgs& args, OpContext&) {
  SLUICE_CUDA_CHECK(cuda::launch_gated_rms_norm(
      rows_of(args.o), rows_of(args.z), args.weight.data(), static_cast<int>(args.weight.size()),
      args.eps, rows_of(args.out), stream()));
}

void linear(const LinearArgs& args, OpContext&) {
  for (const Projection& projection : args.projections) {
    SLUICE_CUDA_CHECK(cuda::launch_linear(rows_of(args.x), weight_of(projection.weight), false,
                                          rows_of(projection.out), stream()));
  }
}

void linear_residual(const LinearResidualArgs& args, OpContext&) {
  SLUICE_CUDA_CHECK(cuda::launch_linear(rows_of(args.x), weight_of(args.weight), true,
                                        rows_of(args.residual), stream()));
}

void gate_up(const GateUpArgs& args, OpContext&) {
  SLUICE_CUDA_CHECK(cuda::launch_gate_up(rows_of(args.x), weight_of(args.gate), weight_of(args.up),
                                         rows_of(args.out), stream()));
}

void conv1d(const Conv1dArgs& args, OpContext& context) {
  check_step(args.runs, context);
  SLUICE_CUDA_CHECK(cuda::launch_conv1d(rows_of(args.x), args.weight.data(), context.step,
                                        args.state, rows_of(args.out), stream()));
}

void gdn_gates(const GdnGatesArgs& args, OpContext&) {
  SLUICE_CUDA_CHECK(cuda::launch_gdn_gates(rows_of(args.a), rows_of(args.b), args.A_log.data(),
                                           args.dt_bias.data(), rows_of(args.g), rows_of(args.beta),
                                           stream()));
}

void gdn_step(const GdnArgs& args, OpContext& context) {
  check_step(args.runs, context);
  const cuda::GdnStep step = {static_cast<int>(args.shape.num_k_heads),
                              static_cast<int>(args.shape.num_v_heads),
                              rows_of(args.qkv),
                              rows_of(args.g),
                              rows_of(args.beta),
                              args.state,
                              rows_of(args.o)};
  SLUICE_CUDA_CHECK(cuda::launch_gdn_step(step, context.step, stream()));
}

void attn_prepare(const AttnPrepareArgs& args, OpContext& context) {
  check_step(args.runs, context);
  const AttentionShape& shape = args.shape;
  const cuda::AttnPrepare prepare = {static_cast<int>(shape.num_heads),
                                     static_cast<int>(shape.num_kv_heads),
                                     static_cast<int>(shape.rotary_dim),
                                     rows_of(args.qg),
                                     rows_of(args.k),
                                     rows_of(args.v),
                                     args.q_norm.data(),
                                     args.k_norm.data(),
                                     args.eps,
                                     rows_of(args.cos),
                                     rows_of(args.sin),
                                     args.kv,
                                     rows_of(args.q)};
  SLUICE_CUDA_CHECK(cuda::launch_attn_prepare(prepare, context.step, stream()));
}

void attention(const AttentionArgs& args, OpContext& context) {
  check_step(args.runs, context);
  const cuda::Attention attention = {static_cast<int>(args.shape.num_heads),
                                     static_cast<int>(args.shape.num_kv_heads),
                                     rows_of(args.q),
                                     rows_of(args.qg),
                                     args.kv,
                                     rows_of(args.out)};
  SLUICE_CUDA_CHECK(cuda::launch_attention(attention, context.step, stream()));
}

size_t scratch_bytes(const OpDims& dims) {
  return cuda::step_block_bytes(dims.num_rows_max, dims.context_max);
}

}  // namespace

Result<const OpTable*> cuda_ops() {
  SLUICE_RETURN_IF_ERROR(cuda::open_device().status());
  static const OpTable kTable = {
      .name = "cuda",
      .memory = &cuda::device_memory(),
      .check_shape = check_shape,
      .scratch_bytes = scratch_bytes,
      .begin_step = cuda::begin_step,
      .end_step = cuda::end_step,
      .embed = embed,
      .rms_norm = rms_norm,
      .gated_rms_norm = gated_rms_norm,
      .linear = linear,
      .linear_residual = linear_residual,
      .gate_up = gate_up,
      .conv1d = conv1d,
      .gdn_gates = gdn_gates,
      .gdn_step = gdn_step,
      .gdn_chunk = gdn_step,  // row after row: the same function and bits
      .attn_prepare = attn_prepare,
      .attention = attention,
  };
  return &kTable;
}

}  // namespace sluice
