// The CUDA backend's table.
#include "ops/cuda/cuda_ops.h"

#include <algorithm>

#include "ops/cuda/blocks.h"
#include "ops/cuda/device.h"
#include "ops/cuda/gdn_prefill.h"
#include "ops/cuda/gemm_prefill.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/pack.h"
#include "ops/cuda/projections.h"
#include "ops/cuda/sample.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/step_state.h"
#include "ops/cuda/views.h"

namespace sluice {
namespace {

Status check_equal(std::string_view what, int64_t value, int64_t wanted) {
  if (value == wanted) return Status();
  return unsupported("{} is {}; the CUDA backend has kernels for {}", what, value, wanted);
}

Status check_multiple(std::string_view what, int64_t value, int64_t of) {
  if (value > 0 && value % of == 0) return Status();
  return unsupported("{} is {}; the CUDA backend's kernels take multiples of {}", what, value, of);
}

Status check_at_most(std::string_view what, int64_t value, int64_t limit) {
  if (value <= limit) return Status();
  return unsupported("{} is {}; the CUDA backend has kernels for up to {}", what, value, limit);
}

/// What the kernels of prompts have; all published sizes do.
Status check_prefill_shape(const OpDims& dims) {
  SLUICE_RETURN_IF_ERROR(check_at_most("intermediate_size", dims.intermediate,
                                       cuda::kGemmPrefillBlocksMax * cuda::kScaleBlock));
  return check_at_most("the number of value heads a key head of a GDN layer serves",
                       dims.gdn.num_v_heads / std::max<int64_t>(1, dims.gdn.num_k_heads),
                       cuda::kGdnPrefillGroupMax);
}

Status check_shape(const OpDims& dims) {
  constexpr int64_t kStep = cuda::kScaleBlock;
  constexpr int64_t kVocabStep = 8;  // ids of a 16-byte load: the sampler's
  SLUICE_RETURN_IF_ERROR(ref_ops().check_shape(dims));
  SLUICE_RETURN_IF_ERROR(check_multiple("hidden_size", dims.hidden, kStep));
  SLUICE_RETURN_IF_ERROR(check_multiple("intermediate_size", dims.intermediate, kStep));
  SLUICE_RETURN_IF_ERROR(check_at_most("hidden_size", dims.hidden, cuda::kNormedColumnsMax));
  if (cuda::has_prefill_kernels()) SLUICE_RETURN_IF_ERROR(check_prefill_shape(dims));
  SLUICE_RETURN_IF_ERROR(check_multiple("vocab_size", dims.vocab_size, kVocabStep));
  SLUICE_RETURN_IF_ERROR(check_equal("head_dim", dims.attention.head_dim, 256));
  SLUICE_RETURN_IF_ERROR(check_equal("rotary_dim", dims.attention.rotary_dim, 64));
  SLUICE_RETURN_IF_ERROR(check_at_most("the number of attention heads a key-value head serves",
                                       dims.attention.num_heads / dims.attention.num_kv_heads, 8));
  SLUICE_RETURN_IF_ERROR(check_equal("linear_key_head_dim", dims.gdn.head_k_dim, 128));
  return check_equal("linear_value_head_dim", dims.gdn.head_v_dim, 128);
}

using cuda::rows_of;

cudaStream_t stream() {
  return cuda::device().stream;
}

/// The views' rows are those that begin_step brought over, padding included.
template <typename T>
void check_step(const MatView<T>& view, const OpContext& context) {
  SLUICE_CHECK_EQ(view.num_rows, context.step.num_rows);
}

void embed(const EmbedArgs& args, OpContext& context) {
  check_step(args.out, context);
  SLUICE_CUDA_CHECK(
      cuda::launch_embed(rows_of(args.table), context.step, rows_of(args.out), stream()));
}

void gather(const GatherArgs& args, OpContext& context) {
  check_step(args.x, context);
  SLUICE_CHECK_EQ(args.out.num_rows, context.step.num_logit_rows);
  SLUICE_CUDA_CHECK(
      cuda::launch_gather(rows_of(args.x), context.step, rows_of(args.out), stream()));
}

void rms_norm(const RmsNormArgs& args, OpContext& context) {
  check_step(args.x, context);
  SLUICE_CUDA_CHECK(cuda::launch_rms_norm(rows_of(args.x), args.weight.data(), args.eps,
                                          context.step, rows_of(args.out), stream()));
}

void gated_rms_norm(const GatedRmsNormArgs& args, OpContext& context) {
  check_step(args.o, context);
  SLUICE_CUDA_CHECK(cuda::launch_gated_rms_norm(
      rows_of(args.o), rows_of(args.z), args.weight.data(), static_cast<int>(args.weight.size()),
      args.eps, context.step, rows_of(args.out), stream()));
}

void conv1d(const Conv1dArgs& args, OpContext& context) {
  check_step(args.x, context);
  SLUICE_CUDA_CHECK(cuda::launch_conv1d(rows_of(args.x), args.weight.data(), context.step,
                                        args.state, rows_of(args.out), stream()));
}

void gdn_gates(const GdnGatesArgs& args, OpContext& context) {
  check_step(args.a, context);
  SLUICE_CUDA_CHECK(cuda::launch_gdn_gates(rows_of(args.a), rows_of(args.b), args.A_log.data(),
                                           args.dt_bias.data(), context.step, rows_of(args.g),
                                           rows_of(args.beta), stream()));
}

void gdn_step(const GdnArgs& args, OpContext& context) {
  check_step(args.qkv, context);
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
  check_step(args.qg, context);
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
  check_step(args.q, context);
  const cuda::Attention attention = {static_cast<int>(args.shape.num_heads),
                                     static_cast<int>(args.shape.num_kv_heads),
                                     rows_of(args.q),
                                     rows_of(args.qg),
                                     args.kv,
                                     rows_of(args.out)};
  SLUICE_CUDA_CHECK(cuda::launch_attention(attention, context.step, stream()));
}

void draw(const DrawArgs& args, OpContext& context) {
  cuda::StepState& state = cuda::step_state(context);
  cuda::SampleArgs sample = {};
  sample.logits = args.logits.data;
  sample.stride = args.logits.stride;
  sample.num_defined = args.num_defined;
  sample.num_rows = static_cast<int32_t>(args.logits.num_rows);
  sample.rows = state.sample_rows();
  sample.drawn = context.step.drawn;
  sample.drawn_logits = state.drawn_logits();
  sample.workspace = state.work().sampling;
  SLUICE_CUDA_CHECK(cuda::launch_sample(sample, stream()));
}

size_t scratch_bytes(const OpDims&) {
  return 0;
}

bool begin_step(const StepRows& rows, OpContext& context) {
  return cuda::step_state(context).begin(rows, context);
}

void end_step(OpContext& context) {
  cuda::step_state(context).end(context);
}

void await_step(OpContext& context) {
  cuda::step_state(context).await(context);
}

}  // namespace

Result<const OpTable*> cuda_ops(bool is_portable) {
  SLUICE_RETURN_IF_ERROR(cuda::open_device().status());
  cuda::use_portable_projections(is_portable);
  static const OpTable kTable = {
      .name = "cuda",
      .memory = &cuda::device_memory(),
      .check_shape = check_shape,
      .scratch_bytes = scratch_bytes,
      .weight_bytes = cuda::packed_bytes,
      .begin_placing = cuda::open_staging,
      .place_weight = cuda::pack_weight,
      .end_placing = cuda::release_staging,
      .open_state = cuda::StepState::open,
      .padded_rows = cuda::padded_step_rows,
      .begin_step = begin_step,
      .end_step = end_step,
      .await_step = await_step,
      .gdn_mixer = cuda::gdn_mixer_block,
      .attention_mixer = cuda::attention_mixer_block,
      .mlp = cuda::mlp_block,
      .head = cuda::head_block,
      .draw = draw,
      .embed = embed,
      .gather = gather,
      .rms_norm = rms_norm,
      .gated_rms_norm = gated_rms_norm,
      .linear = cuda::linear,
      .linear_residual = cuda::linear_residual,
      .gate_up = cuda::gate_up,
      .conv1d = conv1d,
      .gdn_gates = gdn_gates,
      .gdn_step = gdn_step,
      .gdn_chunk = gdn_step,  // row after row: the same function and bits
      .attn_prepare = attn_prepare,
      .attention = attention,
  };
  return &kTable;
}

bool cuda_has_prefill() {
  return cuda::has_prefill_kernels();
}

}  // namespace sluice
