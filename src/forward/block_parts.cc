#include "forward/block_parts.h"

#include <array>

namespace sluice {
namespace {

void gdn_mixer_parts(const OpTable& ops, const GdnMixerArgs& args, OpContext& context) {
  ops.rms_norm({args.x, args.input_norm, args.eps, args.h}, context);
  const std::array<Projection, 4> projections = {{{args.in_proj_qkv, args.qkv},
                                                  {args.in_proj_z, args.z},
                                                  {args.in_proj_b, args.b},
                                                  {args.in_proj_a, args.a}}};
  ops.linear({args.h, projections}, context);
  ops.conv1d({args.qkv, args.conv1d, args.runs, args.conv_state, args.conv}, context);
  ops.gdn_gates({args.a, args.b, args.A_log, args.dt_bias, args.g, args.beta}, context);
  const GdnArgs gdn = {args.shape, args.conv,      args.g,   args.beta,
                       args.runs,  args.recurrent, args.core};
  (args.form == GdnForm::kStep ? ops.gdn_step : ops.gdn_chunk)(gdn, context);
  ops.gated_rms_norm({args.core, args.z, args.norm, args.eps, args.core}, context);
  ops.linear_residual({args.core, args.out_proj, args.x}, context);
}

void attention_mixer_parts(const OpTable& ops, const AttentionMixerArgs& args, OpContext& context) {
  ops.rms_norm({args.x, args.input_norm, args.eps, args.h}, context);
  const std::array<Projection, 3> projections = {
      {{args.q_proj, args.qg}, {args.k_proj, args.k}, {args.v_proj, args.v}}};
  ops.linear({args.h, projections}, context);
  ops.attn_prepare({args.shape, args.qg, args.k, args.v, args.q_norm, args.k_norm, args.eps,
                    args.cos, args.sin, args.runs, args.kv, args.q},
                   context);
  ops.attention({args.shape, args.q, args.qg, args.runs, args.kv, args.core}, context);
  ops.linear_residual({args.core, args.o_proj, args.x}, context);
}

void mlp_parts(const OpTable& ops, const MlpArgs& args, OpContext& context) {
  ops.rms_norm({args.x, args.norm, args.eps, args.h}, context);
  ops.gate_up({args.h, args.gate_proj, args.up_proj, args.mlp}, context);
  ops.linear_residual({args.mlp, args.down_proj, args.x}, context);
}

void head_parts(const OpTable& ops, const HeadArgs& args, OpContext& context) {
  ops.rms_norm({args.x, args.norm, args.eps, args.hidden}, context);
  if (args.logits.num_rows == 0) return;
  ops.gather({args.hidden, args.logit_rows, args.logit_input}, context);
  const Projection lm_head = {args.lm_head, args.logits};
  ops.linear({args.logit_input, {&lm_head, 1}}, context);
}

template <typename Args>
void run_block(bool (*block)(const Args&, OpContext&),
               void (*parts)(const OpTable&, const Args&, OpContext&), const OpTable& ops,
               const Args& args, OpContext& context) {
  if (block != nullptr && block(args, context)) return;
  parts(ops, args, context);
}

}  // namespace

void gdn_mixer(const OpTable& ops, const GdnMixerArgs& args, OpContext& context) {
  run_block(ops.gdn_mixer, gdn_mixer_parts, ops, args, context);
}

void attention_mixer(const OpTable& ops, const AttentionMixerArgs& args, OpContext& context) {
  run_block(ops.attention_mixer, attention_mixer_parts, ops, args, context);
}

void mlp(const OpTable& ops, const MlpArgs& args, OpContext& context) {
  run_block(ops.mlp, mlp_parts, ops, args, context);
}

void head(const OpTable& ops, const HeadArgs& args, OpContext& context) {
  run_block(ops.head, head_parts, ops, args, context);
}

}  // namespace sluice
