#include "forward/decoder_layer.h"

#include "forward/block_parts.h"

namespace sluice {
namespace {

GdnMixerArgs gdn_args(const LayerWeights& layer, int64_t gdn_layer_idx, const LayerContext& ctx,
                      const Activations& act) {
  const auto& w = std::get<GdnLayerWeights>(layer.mixer);
  GdnMixerArgs args;
  args.x = act.x;
  args.input_norm = layer.input_layernorm;
  args.eps = ctx.config.rms_norm_eps;
  args.shape = gdn_shape(ctx.config);
  args.form = ctx.gdn_form;
  args.in_proj_qkv = w.in_proj_qkv;
  args.in_proj_z = w.in_proj_z;
  args.in_proj_b = w.in_proj_b;
  args.in_proj_a = w.in_proj_a;
  args.conv1d = w.conv1d;
  args.A_log = w.A_log;
  args.dt_bias = w.dt_bias;
  args.norm = w.norm;
  args.out_proj = w.out_proj;
  args.runs = ctx.runs;
  args.recurrent = ctx.state.recurrent_layer(gdn_layer_idx);
  args.conv_state = ctx.state.conv_layer(gdn_layer_idx);
  args.h = act.h;
  args.qkv = act.qkv;
  args.z = act.z;
  args.b = act.b;
  args.a = act.a;
  args.conv = act.conv;
  args.g = act.g;
  args.beta = act.beta;
  args.core = act.core.cols(0, ctx.config.linear_value_dim());
  return args;
}

AttentionMixerArgs attention_args(const LayerWeights& layer, int64_t attention_layer_idx,
                                  const LayerContext& ctx, const Activations& act) {
  const auto& w = std::get<AttentionLayerWeights>(layer.mixer);
  AttentionMixerArgs args;
  args.x = act.x;
  args.input_norm = layer.input_layernorm;
  args.eps = ctx.config.rms_norm_eps;
  args.shape = attention_shape(ctx.config);
  args.q_proj = w.q_proj;
  args.k_proj = w.k_proj;
  args.v_proj = w.v_proj;
  args.q_norm = w.q_norm;
  args.k_norm = w.k_norm;
  args.cos = ctx.rope.cos();
  args.sin = ctx.rope.sin();
  args.o_proj = w.o_proj;
  args.runs = ctx.runs;
  args.kv = ctx.state.kv_layer(attention_layer_idx);
  args.h = act.h;
  args.qg = act.qg;
  args.k = act.k;
  args.v = act.v;
  args.q = act.q;
  args.core = act.core.cols(0, ctx.config.attention_dim());
  return args;
}

}  // namespace

AttentionShape attention_shape(const ModelConfig& c) {
  return {c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rotary_dim};
}

void decoder_layer(const LayerWeights& weights, int64_t mixer_idx, const LayerContext& ctx,
                   const Activations& act) {
  if (std::holds_alternative<GdnLayerWeights>(weights.mixer)) {
    gdn_mixer(ctx.ops, gdn_args(weights, mixer_idx, ctx, act), ctx.op_context);
  } else {
    attention_mixer(ctx.ops, attention_args(weights, mixer_idx, ctx, act), ctx.op_context);
  }
  mlp(ctx.ops,
      {act.x, weights.post_attention_layernorm, ctx.config.rms_norm_eps, weights.mlp.gate_proj,
       weights.mlp.up_proj, weights.mlp.down_proj, act.h, act.mlp},
      ctx.op_context);
}

}  // namespace sluice
