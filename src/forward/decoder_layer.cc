#include "forward/decoder_layer.h"

#include <array>

namespace sluice {
namespace {

void norm(const MatView<bf16>& x, VectorView weight, const LayerContext& ctx,
          const MatView<bf16>& out) {
  ctx.ops.rms_norm({x, weight, ctx.config.rms_norm_eps, out}, ctx.op_context);
}

void gdn_mixer(const GdnLayerWeights& w, int64_t gdn_layer_idx, const LayerContext& ctx,
               const Activations& act) {
  const std::array<Projection, 4> projections = {
      {{w.in_proj_qkv, act.qkv}, {w.in_proj_z, act.z}, {w.in_proj_b, act.b}, {w.in_proj_a, act.a}}};
  ctx.ops.linear({act.h, projections}, ctx.op_context);
  ctx.ops.conv1d({act.qkv, w.conv1d, ctx.runs, ctx.state.conv_layer(gdn_layer_idx), act.conv},
                 ctx.op_context);
  ctx.ops.gdn_gates({act.a, act.b, w.A_log, w.dt_bias, act.g, act.beta}, ctx.op_context);
  const MatView<bf16> core = act.core.cols(0, ctx.config.linear_value_dim());
  const GdnArgs gdn = {gdn_shape(ctx.config),
                       act.conv,
                       act.g,
                       act.beta,
                       ctx.runs,
                       ctx.state.recurrent_layer(gdn_layer_idx),
                       core};
  (ctx.gdn_form == GdnForm::kStep ? ctx.ops.gdn_step : ctx.ops.gdn_chunk)(gdn, ctx.op_context);
  ctx.ops.gated_rms_norm({core, act.z, w.norm, ctx.config.rms_norm_eps, core}, ctx.op_context);
  ctx.ops.linear_residual({core, w.out_proj, act.x}, ctx.op_context);
}

void attention_mixer(const AttentionLayerWeights& w, int64_t attention_layer_idx,
                     const LayerContext& ctx, const Activations& act) {
  const std::array<Projection, 3> projections = {
      {{w.q_proj, act.qg}, {w.k_proj, act.k}, {w.v_proj, act.v}}};
  ctx.ops.linear({act.h, projections}, ctx.op_context);
  const AttentionShape shape = attention_shape(ctx.config);
  const KvLayerView kv = ctx.state.kv_layer(attention_layer_idx);
  ctx.ops.attn_prepare({shape, act.qg, act.k, act.v, w.q_norm, w.k_norm, ctx.config.rms_norm_eps,
                        ctx.rope.cos(), ctx.rope.sin(), ctx.runs, kv, act.q},
                       ctx.op_context);
  const MatView<bf16> core = act.core.cols(0, ctx.config.attention_dim());
  ctx.ops.attention({shape, act.q, act.qg, ctx.runs, kv, core}, ctx.op_context);
  ctx.ops.linear_residual({core, w.o_proj, act.x}, ctx.op_context);
}

}  // namespace

AttentionShape attention_shape(const ModelConfig& c) {
  return {c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rotary_dim};
}

void decoder_layer(const LayerWeights& weights, int64_t mixer_idx, const LayerContext& ctx,
                   const Activations& act) {
  norm(act.x, weights.input_layernorm, ctx, act.h);
  if (const auto* gdn = std::get_if<GdnLayerWeights>(&weights.mixer)) {
    gdn_mixer(*gdn, mixer_idx, ctx, act);
  } else {
    attention_mixer(std::get<AttentionLayerWeights>(weights.mixer), mixer_idx, ctx, act);
  }
  norm(act.x, weights.post_attention_layernorm, ctx, act.h);
  ctx.ops.gate_up({act.h, weights.mlp.gate_proj, weights.mlp.up_proj, act.mlp}, ctx.op_context);
  ctx.ops.linear_residual({act.mlp, weights.mlp.down_proj, act.x}, ctx.op_context);
}

}  // namespace sluice
