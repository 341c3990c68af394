#include "apps/bench/step_flop.h"

namespace sluice {
namespace {

int64_t mixer_flop(const GdnLayerWeights& w, int64_t num_rows) {
  return product_flop(w.in_proj_qkv, num_rows) + product_flop(w.in_proj_z, num_rows) +
         product_flop(w.in_proj_b, num_rows) + product_flop(w.in_proj_a, num_rows) +
         product_flop(w.out_proj, num_rows);
}

int64_t mixer_flop(const AttentionLayerWeights& w, int64_t num_rows) {
  return product_flop(w.q_proj, num_rows) + product_flop(w.k_proj, num_rows) +
         product_flop(w.v_proj, num_rows) + product_flop(w.o_proj, num_rows);
}

}  // namespace

int64_t product_flop(const WeightView& weight, int64_t num_rows) {
  return 2 * num_rows * weight.num_out * weight.num_in;
}

int64_t projection_flop(const ModelWeights& weights, int64_t num_rows) {
  int64_t flop = 0;
  for (const LayerWeights& layer : weights.layers) {
    flop += std::visit([&](const auto& mixer) { return mixer_flop(mixer, num_rows); }, layer.mixer);
    flop += product_flop(layer.mlp.gate_proj, num_rows) +
            product_flop(layer.mlp.up_proj, num_rows) + product_flop(layer.mlp.down_proj, num_rows);
  }
  return flop;
}

int64_t attention_flop(const ModelConfig& config, int64_t position, int64_t num_rows) {
  const int64_t pairs = num_rows * position + num_rows * (num_rows + 1) / 2;
  return 2 * 2 * pairs * config.attention_dim();
}

int64_t gdn_flop(const ModelConfig& config, int64_t num_rows) {
  constexpr int64_t kProducts = 3;
  return kProducts * 2 * num_rows * config.linear_value_dim() * config.linear_key_head_dim;
}

int64_t prompt_flop(const ModelWeights& weights, int64_t position, int64_t num_rows) {
  const ModelConfig& config = weights.config;
  return projection_flop(weights, num_rows) + product_flop(weights.lm_head, 1) +
         config.num_full_attention_layers() * attention_flop(config, position, num_rows) +
         config.num_linear_attention_layers() * gdn_flop(config, num_rows);
}

}  // namespace sluice
