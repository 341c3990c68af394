#include "ops/cuda/blocks.h"

#include <algorithm>
#include <array>

#include "ops/cuda/attention_decode.h"
#include "ops/cuda/attention_prefill.h"
#include "ops/cuda/device.h"
#include "ops/cuda/gdn_core.h"
#include "ops/cuda/gdn_prefill.h"
#include "ops/cuda/projections.h"
#include "ops/cuda/skinny.h"
#include "ops/cuda/step_state.h"
#include "ops/cuda/views.h"

namespace sluice::cuda {
namespace {

cudaStream_t stream() {
  return device().stream;
}

/// Prompts' steps of any size, decode's of up to kProjectionRowsMax rows.
bool has_blocks(const OpContext& context) {
  return context.is_prefill || context.step.num_rows <= kProjectionRowsMax;
}

const WorkMemory& work_of(const OpContext& context) {
  return step_state(context).work();
}

ProjectionScratch scratch_of(const OpContext& context) {
  const WorkMemory& work = work_of(context);
  return {work.partials, work.tickets, context.step.range_flag};
}

/// What `buffer` holds as operands, or is to hold.
ProjectionInput operands_of(int64_t num_rows, int64_t num_cols, const OperandBuffer& buffer,
                            const OpContext& context) {
  ProjectionInput input = {static_cast<int>(num_rows), static_cast<int>(num_cols), buffer.f16};
  input.is_prefill = context.is_prefill;
  if (context.is_prefill) input.fp8 = buffer.fp8(num_rows, num_cols);
  return input;
}

ProjectionInput normed(const MatView<bf16>& x, std::span<const float> weight, float eps,
                       const OpContext& context) {
  ProjectionInput input = operands_of(x.num_rows, x.num_cols, work_of(context).input, context);
  input.values = x.data;
  input.stride = x.stride;
  input.norm_weight = weight.data();
  input.eps = eps;
  return input;
}

ProjectionOutput output_of(const WeightView& weight, const MatView<bf16>& out) {
  return {weight_of(weight), out.data, out.stride};
}

/// Values as they are, made into operands in `buffer`.
ProjectionInput plain(const MatView<const bf16>& x, const OperandBuffer& buffer,
                      const OpContext& context) {
  ProjectionInput input = operands_of(x.num_rows, x.num_cols, buffer, context);
  input.values = x.data;
  input.stride = x.stride;
  return input;
}

/// Where a core leaves its output for a projection in FP8; nowhere if that reads f16.
Fp8Operands fp8_core(const MatView<bf16>& core, const WeightView& weight,
                     const OpContext& context) {
  if (!context.is_prefill || weight_of(weight).scales == nullptr) return {};
  return work_of(context).output.fp8(core.num_rows, core.num_cols);
}

/// x += core W^T of a core that lies in the work memory as operands; in `fp8` if there is such.
void close_mixer(const MatView<bf16>& core, const Fp8Operands& fp8, const WeightView& weight,
                 const MatView<bf16>& x, const OpContext& context) {
  ProjectionInput input =
      operands_of(core.num_rows, core.num_cols, work_of(context).output, context);
  input.has_fp8 = fp8.values != nullptr;
  SLUICE_CUDA_CHECK(project_residual(input, output_of(weight, x), scratch_of(context), stream()));
}

/// Calls fn(first, rows) for slices that the projections take.
template <typename Fn>
void for_row_slices(const MatView<const bf16>& x, const OpContext& context, Fn&& fn) {
  const int64_t at_once = context.is_prefill ? x.num_rows : kProjectionRowsMax;
  for (int64_t first = 0; first < x.num_rows; first += at_once) {
    fn(first, x.rows(first, std::min(at_once, x.num_rows - first)));
  }
}

/// What GdnCore and GdnPrefill share.
template <typename Core>
Core gdn_core_of(const GdnMixerArgs& args, const OpContext& context) {
  Core core = {};
  core.num_k_heads = static_cast<int>(args.shape.num_k_heads);
  core.num_v_heads = static_cast<int>(args.shape.num_v_heads);
  core.qkv = const_rows_of(args.qkv);
  core.z = const_rows_of(args.z);
  core.a = const_rows_of(args.a);
  core.b = const_rows_of(args.b);
  core.conv_weight = args.conv1d.data();
  core.A_log = args.A_log.data();
  core.dt_bias = args.dt_bias.data();
  core.norm = args.norm.data();
  core.eps = args.eps;
  core.conv = args.conv_state;
  core.state = args.recurrent;
  core.operands = work_of(context).output.f16;
  core.range_flag = context.step.range_flag;
  return core;
}

GdnCore decode_core(const GdnMixerArgs& args, const OpContext& context) {
  auto core = gdn_core_of<GdnCore>(args, context);
  core.tickets = work_of(context).gdn_tickets;
  core.core = rows_of(args.core);
  return core;
}

GdnPrefill prefill_core(const GdnMixerArgs& args, const OpContext& context) {
  auto core = gdn_core_of<GdnPrefill>(args, context);
  core.fp8 = fp8_core(args.core, args.out_proj, context);
  core.scratch = work_of(context).gdn_prefill;
  core.scratch_chunks = kGdnPrefillChunks;
  return core;
}

/// From the projections' outputs to work.output.
void run_gdn_core(const GdnMixerArgs& args, const OpContext& context) {
  if (!context.is_prefill) {
    SLUICE_CUDA_CHECK(launch_gdn_core(decode_core(args, context), context.step, stream()));
    return;
  }
  SLUICE_CUDA_CHECK(launch_gdn_prefill(prefill_core(args, context), args.runs.data(),
                                       static_cast<int>(args.runs.size()), stream()));
}

/// What AttentionDecode and AttentionPrefill share.
template <typename Core>
Core attention_core_of(const AttentionMixerArgs& args, const OpContext& context) {
  Core core = {};
  core.num_heads = static_cast<int>(args.shape.num_heads);
  core.num_kv_heads = static_cast<int>(args.shape.num_kv_heads);
  core.qg = const_rows_of(args.qg);
  core.k = const_rows_of(args.k);
  core.v = const_rows_of(args.v);
  core.q_norm = args.q_norm.data();
  core.k_norm = args.k_norm.data();
  core.eps = args.eps;
  core.cos = rows_of(args.cos);
  core.sin = rows_of(args.sin);
  core.kv = args.kv;
  core.operands = work_of(context).output.f16;
  core.range_flag = context.step.range_flag;
  core.num_sms = device().num_sms;
  return core;
}

AttentionDecode decode_attention(const AttentionMixerArgs& args, const OpContext& context) {
  auto core = attention_core_of<AttentionDecode>(args, context);
  core.out = rows_of(args.core);
  core.context_max = args.cos.num_rows;
  core.scratch = work_of(context).attention;
  return core;
}

AttentionPrefill prefill_attention(const AttentionMixerArgs& args, const OpContext& context) {
  auto core = attention_core_of<AttentionPrefill>(args, context);
  for (const RowRun& run : args.runs) {
    core.context_max = std::max<int64_t>(core.context_max, run.position + run.num_rows);
  }
  core.scratch = work_of(context).attention_prefill;
  core.scratch_bytes = work_of(context).attention_prefill_bytes;
  return core;
}

/// From the projections' outputs to work.output.
void run_attention_core(const AttentionMixerArgs& args, const OpContext& context) {
  if (context.is_prefill) {
    SLUICE_CUDA_CHECK(
        launch_attention_prefill(prefill_attention(args, context), context.step, stream()));
  } else {
    SLUICE_CUDA_CHECK(
        launch_attention_decode(decode_attention(args, context), context.step, stream()));
  }
}

}  // namespace

bool gdn_mixer_block(const GdnMixerArgs& args, OpContext& context) {
  const GdnForm form = context.is_prefill ? GdnForm::kChunk : GdnForm::kStep;
  if (!has_blocks(context) || args.form != form) return false;
  const std::array<ProjectionOutput, 4> outputs = {
      output_of(args.in_proj_qkv, args.qkv), output_of(args.in_proj_z, args.z),
      output_of(args.in_proj_b, args.b), output_of(args.in_proj_a, args.a)};
  SLUICE_CUDA_CHECK(project(normed(args.x, args.input_norm, args.eps, context), outputs,
                            scratch_of(context), stream()));
  run_gdn_core(args, context);
  close_mixer(args.core, fp8_core(args.core, args.out_proj, context), args.out_proj, args.x,
              context);
  return true;
}

bool attention_mixer_block(const AttentionMixerArgs& args, OpContext& context) {
  if (!has_blocks(context)) return false;
  const std::array<ProjectionOutput, 3> outputs = {output_of(args.q_proj, args.qg),
                                                   output_of(args.k_proj, args.k),
                                                   output_of(args.v_proj, args.v)};
  SLUICE_CUDA_CHECK(project(normed(args.x, args.input_norm, args.eps, context), outputs,
                            scratch_of(context), stream()));
  run_attention_core(args, context);
  close_mixer(args.core, {}, args.o_proj, args.x, context);
  return true;
}

bool mlp_block(const MlpArgs& args, OpContext& context) {
  if (!has_blocks(context)) return false;
  const WorkMemory& work = work_of(context);
  const int64_t intermediate = args.gate_proj.num_out;
  const ProjectionInput x = normed(args.x, args.norm, args.eps, context);
  ProjectionInput input = operands_of(args.x.num_rows, intermediate, work.output, context);
  GateUpOutput halves = {weight_of(args.gate_proj), weight_of(args.up_proj), work.output.f16};
  // A down_proj in BF16 reads f16.
  if (weight_of(args.down_proj).scales != nullptr) halves.fp8 = input.fp8;
  input.has_fp8 = gates_in_fp8(x, halves);
  SLUICE_CUDA_CHECK(project_gate_up(x, halves, scratch_of(context), stream()));
  SLUICE_CUDA_CHECK(
      project_residual(input, output_of(args.down_proj, args.x), scratch_of(context), stream()));
  return true;
}

bool head_block(const HeadArgs& args, OpContext& context) {
  if (!has_blocks(context)) return false;
  OperandsArgs norm = {};
  norm.values = args.x.data;
  norm.stride = args.x.stride;
  norm.num_rows = static_cast<int>(args.x.num_rows);
  norm.num_cols = static_cast<int>(args.x.num_cols);
  norm.norm_weight = args.norm.data();
  norm.eps = args.eps;
  norm.normed = args.hidden.data;
  norm.out_stride = args.hidden.stride;
  norm.range_flag = context.step.range_flag;
  SLUICE_CUDA_CHECK(launch_operands(norm, stream()));
  if (args.logits.num_rows == 0) return true;
  for (int64_t first = 0; first < args.logits.num_rows; first += kProjectionRowsMax) {
    const int64_t count = std::min<int64_t>(kProjectionRowsMax, args.logits.num_rows - first);
    ProjectionInput rows = plain(args.hidden, work_of(context).input, context);
    rows.num_rows = static_cast<int>(count);
    rows.row_list = context.step.logit_rows + first;
    // Few rows, and the same bits behind a prompt as behind a token.
    rows.is_prefill = false;
    rows.fp8 = {};
    const ProjectionOutput logits = output_of(args.lm_head, args.logits.rows(first, count));
    SLUICE_CUDA_CHECK(project(rows, {&logits, 1}, scratch_of(context), stream()));
  }
  return true;
}

void linear(const LinearArgs& args, OpContext& context) {
  for_row_slices(args.x, context, [&](int64_t first, const MatView<const bf16>& x) {
    for (const Projection& projection : args.projections) {
      const ProjectionOutput output =
          output_of(projection.weight, projection.out.rows(first, x.num_rows));
      SLUICE_CUDA_CHECK(project(plain(x, work_of(context).output, context), {&output, 1},
                                scratch_of(context), stream()));
    }
  });
}

void linear_residual(const LinearResidualArgs& args, OpContext& context) {
  for_row_slices(args.x, context, [&](int64_t first, const MatView<const bf16>& x) {
    const ProjectionOutput output = output_of(args.weight, args.residual.rows(first, x.num_rows));
    SLUICE_CUDA_CHECK(project_residual(plain(x, work_of(context).output, context), output,
                                       scratch_of(context), stream()));
  });
}

void gate_up(const GateUpArgs& args, OpContext& context) {
  for_row_slices(args.x, context, [&](int64_t first, const MatView<const bf16>& x) {
    const WorkMemory& work = work_of(context);
    GateUpOutput output = {weight_of(args.gate), weight_of(args.up), work.output.f16};
    output.values = args.out.row(first);
    output.stride = args.out.stride;
    SLUICE_CUDA_CHECK(
        project_gate_up(plain(x, work.input, context), output, scratch_of(context), stream()));
  });
}

}  // namespace sluice::cuda
