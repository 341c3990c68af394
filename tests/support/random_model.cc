#include "tests/support/random_model.h"

#include <cmath>

namespace sluice::testing {

RandomModel::RandomModel(const RandomModelSpec& spec)
    : random_state_(spec.seed * 0x9E3779B97F4A7C15u + 1) {
  ModelConfig& c = weights_.config;
  c.vocab_size = spec.vocab_size;
  c.hidden_size = spec.hidden_size;
  c.intermediate_size = spec.intermediate_size;
  c.num_hidden_layers = spec.num_layers;
  c.max_position_embeddings = 4096;
  c.rms_norm_eps = 1e-6f;
  c.num_attention_heads = spec.num_attention_heads;
  c.num_key_value_heads = spec.num_key_value_heads;
  c.head_dim = 256;
  c.rotary_dim = 64;
  c.rope_theta = 1e7;
  c.linear_num_key_heads = spec.linear_num_key_heads;
  c.linear_num_value_heads = spec.linear_num_value_heads;
  c.linear_key_head_dim = 128;
  c.linear_value_head_dim = 128;
  c.linear_conv_kernel_dim = 4;
  c.mtp_num_hidden_layers = 1;
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    const bool is_gdn = i % 4 != 3;
    c.layer_types.push_back(is_gdn ? LayerType::kLinearAttention : LayerType::kFullAttention);
    weights_.layers.push_back(layer(is_gdn, spec.format));
  }
  const WeightView embed = linear(c.vocab_size, c.hidden_size, WeightFormat::kBf16);
  weights_.embed_tokens =
      MatView<const bf16>(static_cast<const bf16*>(embed.data), c.vocab_size, c.hidden_size);
  weights_.norm = vector(c.hidden_size, -0.2f, 0.2f);
  weights_.lm_head = linear(c.vocab_size, c.hidden_size, WeightFormat::kBf16);
  MtpWeights mtp;
  mtp.fc = linear(c.hidden_size, 2 * c.hidden_size, WeightFormat::kBf16);
  mtp.pre_fc_norm_embedding = vector(c.hidden_size, -0.2f, 0.2f);
  mtp.pre_fc_norm_hidden = vector(c.hidden_size, -0.2f, 0.2f);
  mtp.layer = layer(false, spec.format);
  mtp.norm = vector(c.hidden_size, -0.2f, 0.2f);
  weights_.mtp = mtp;
}

LayerWeights RandomModel::layer(bool is_gdn, WeightFormat format) {
  const ModelConfig& c = weights_.config;
  const int64_t hidden = c.hidden_size;
  LayerWeights layer;
  layer.input_layernorm = vector(hidden, -0.2f, 0.2f);
  layer.post_attention_layernorm = vector(hidden, -0.2f, 0.2f);
  layer.mlp = {linear(c.intermediate_size, hidden, format),
               linear(c.intermediate_size, hidden, format),
               linear(hidden, c.intermediate_size, format)};
  if (is_gdn) {
    GdnLayerWeights gdn;
    gdn.in_proj_qkv = linear(c.conv_dim(), hidden, format);
    gdn.in_proj_z = linear(c.linear_value_dim(), hidden, format);
    gdn.in_proj_b = linear(c.linear_num_value_heads, hidden, WeightFormat::kBf16);
    gdn.in_proj_a = linear(c.linear_num_value_heads, hidden, WeightFormat::kBf16);
    gdn.conv1d = vector(c.conv_dim() * 4, -0.6f, 0.6f);
    gdn.A_log = vector(c.linear_num_value_heads, 0.0f, 2.5f);
    gdn.dt_bias = vector(c.linear_num_value_heads, -4.0f, 1.0f);
    gdn.norm = vector(c.linear_value_head_dim, 0.5f, 1.5f);
    gdn.out_proj = linear(hidden, c.linear_value_dim(), format);
    layer.mixer = gdn;
  } else {
    AttentionLayerWeights attention;
    attention.q_proj = linear(2 * c.attention_dim(), hidden, format);
    attention.k_proj = linear(c.key_value_dim(), hidden, format);
    attention.v_proj = linear(c.key_value_dim(), hidden, format);
    attention.o_proj = linear(hidden, c.attention_dim(), format);
    attention.q_norm = vector(c.head_dim, -0.2f, 0.5f);
    attention.k_norm = vector(c.head_dim, -0.2f, 0.5f);
    layer.mixer = attention;
  }
  return layer;
}

float RandomModel::uniform(float low, float high) {
  random_state_ = random_state_ * 6364136223846793005u + 1442695040888963407u;
  const auto unit = static_cast<float>(random_state_ >> 40) * 0x1p-24f;
  return low + (high - low) * unit;
}

WeightView RandomModel::linear(int64_t num_out, int64_t num_in, WeightFormat format) {
  const auto count = static_cast<size_t>(num_out * num_in);
  const float bound = std::sqrt(3.0f / static_cast<float>(num_in));  // unit gain
  WeightView view;
  view.format = format;
  view.num_out = num_out;
  view.num_in = num_in;
  if (format == WeightFormat::kBf16) {
    std::vector<bf16>& data = bf16_storage_.emplace_back(count);
    for (bf16& x : data) x = to_bf16(uniform(-bound, bound));
    view.data = data.data();
    return view;
  }
  std::vector<uint8_t>& data = fp8_storage_.emplace_back(count);
  for (uint8_t& x : data) x = float_to_e4m3(uniform(-448.0f, 448.0f));
  const auto blocks = static_cast<size_t>((num_out + 127) / 128 * view.scale_cols());
  std::vector<float>& scales = float_storage_.emplace_back(blocks);
  for (float& s : scales) s = rb(bound / 448.0f * uniform(0.5f, 1.5f));
  view.data = data.data();
  view.scales = scales.data();
  return view;
}

VectorView RandomModel::vector(int64_t size, float low, float high) {
  std::vector<float>& data = float_storage_.emplace_back(static_cast<size_t>(size));
  for (float& x : data) x = rb(uniform(low, high));
  return data;
}

}  // namespace sluice::testing
