#include "apps/bench/synthetic_model.h"

#include <cmath>

#include "model/family.h"
#include "model/synth_values.h"
#include "ops/cuda/bench_support.h"

namespace sluice {
namespace {

/// What a small tensor is drawn from.
struct Normal {
  float mean;
  float sigma;
};
constexpr Normal kZeroCentredNorm = {0.0f, 0.05f};
constexpr Normal kGatedNorm = {1.0f, 0.05f};
constexpr Normal kConv1d = {0.0f, 0.5f};
/// The 2 L branches add up to a residual of about 1.
constexpr float kBranchFactor = 2.5f;

float inverse_root(int64_t n) {
  return 1.0f / std::sqrt(static_cast<float>(n));
}

/// The published initialisation: A in [1, 16).
float a_log_value(float uniform) {
  return std::log(1.0f + 15.0f * uniform);
}
/// A step dt log-uniform in [0.001, 0.1] through the inverse of softplus.
float dt_bias_value(float uniform) {
  const float dt = 0.001f * std::exp(uniform * std::log(100.0f));
  return dt + std::log(-std::expm1(-dt));
}

/// Makes tensors in places of one arena, or without an arena counts what they need.
class Maker {
 public:
  Maker(const ModelConfig& config, WeightFormat format, uint64_t seed, const OpTable& ops,
        Arena* arena)
      : config_(config), format_(format), seed_(seed), ops_(ops), arena_(arena) {}

  ModelWeights make() {
    ModelWeights weights;
    weights.config = config_;
    weights.embed_tokens = embedding();
    for (const LayerType type : config_.layer_types) weights.layers.push_back(layer(type));
    weights.norm = vector(config_.hidden_size, kZeroCentredNorm);
    weights.lm_head = weight(WeightFormat::kBf16, config_.vocab_size, config_.hidden_size,
                             2.0f * inverse_root(config_.hidden_size));
    return weights;
  }
  size_t num_bytes() const { return num_bytes_; }

 private:
  uint64_t next_key() { return random_bits(seed_, num_tensors_++); }

  std::byte* take(size_t num_bytes) {
    num_bytes_ += num_bytes + Arena::kAlignment;
    return arena_ == nullptr ? nullptr : arena_->take<std::byte>(static_cast<int64_t>(num_bytes));
  }

  WeightView weight(WeightFormat format, int64_t num_out, int64_t num_in, float sigma) {
    const uint64_t key = next_key();
    std::byte* to = take(cuda::synthetic_weight_bytes(format, num_out, num_in));
    if (to == nullptr) return {format, nullptr, nullptr, num_out, num_in};
    return cuda::make_synthetic_weight(format, num_out, num_in, key, sigma, to);
  }
  /// Keeps the variance of its input.
  WeightView linear(int64_t num_out, int64_t num_in) {
    return weight(format_, num_out, num_in, inverse_root(num_in));
  }
  /// BF16 in every published checkpoint.
  WeightView plain_linear(int64_t num_out, int64_t num_in) {
    return weight(WeightFormat::kBf16, num_out, num_in, inverse_root(num_in));
  }
  WeightView residual_linear(int64_t num_out, int64_t num_in) {
    const float branch = kBranchFactor * inverse_root(2 * config_.num_hidden_layers);
    return weight(format_, num_out, num_in, branch * inverse_root(num_in));
  }

  template <typename Value>
  VectorView vector_of(int64_t count, Value&& value) {
    const uint64_t key = next_key();
    auto* to = reinterpret_cast<float*>(take(static_cast<size_t>(count) * sizeof(float)));
    if (to == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value(key, i);
    ops_.memory->upload(to, values.data(), values.size() * sizeof(float));
    return {to, values.size()};
  }
  VectorView vector(int64_t count, const Normal& normal) {
    return vector_of(count, [&](uint64_t key, uint64_t i) {
      return rb(normal.mean + normal.sigma * random_normal(key, i));
    });
  }
  VectorView uniform_vector(int64_t count, float (*value)(float)) {
    return vector_of(count,
                     [&](uint64_t key, uint64_t i) { return rb(value(random_uniform(key, i))); });
  }

  MatView<const bf16> embedding() {
    const uint64_t key = next_key();
    const int64_t count = config_.vocab_size * config_.hidden_size;
    auto* to = reinterpret_cast<bf16*>(take(static_cast<size_t>(count) * sizeof(bf16)));
    if (to != nullptr) cuda::fill_normal(to, count, key, 2.0f * inverse_root(config_.hidden_size));
    return MatView<const bf16>(to, config_.vocab_size, config_.hidden_size);
  }

  LayerWeights layer(LayerType type) {
    const int64_t hidden = config_.hidden_size;
    LayerWeights weights;
    weights.input_layernorm = vector(hidden, kZeroCentredNorm);
    weights.post_attention_layernorm = vector(hidden, kZeroCentredNorm);
    if (type == LayerType::kLinearAttention) {
      weights.mixer = gdn();
    } else {
      weights.mixer = attention();
    }
    weights.mlp.gate_proj = linear(config_.intermediate_size, hidden);
    weights.mlp.up_proj = linear(config_.intermediate_size, hidden);
    weights.mlp.down_proj = residual_linear(hidden, config_.intermediate_size);
    return weights;
  }

  GdnLayerWeights gdn() {
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.linear_num_value_heads;
    GdnLayerWeights weights;
    weights.in_proj_qkv = linear(config_.conv_dim(), hidden);
    weights.in_proj_z = linear(config_.linear_value_dim(), hidden);
    weights.in_proj_b = plain_linear(heads, hidden);
    weights.in_proj_a = plain_linear(heads, hidden);
    weights.conv1d = vector(config_.conv_dim() * config_.linear_conv_kernel_dim, kConv1d);
    weights.A_log = uniform_vector(heads, a_log_value);
    weights.dt_bias = uniform_vector(heads, dt_bias_value);
    weights.norm = vector(config_.linear_value_head_dim, kGatedNorm);
    weights.out_proj = residual_linear(hidden, config_.linear_value_dim());
    return weights;
  }

  AttentionLayerWeights attention() {
    const int64_t hidden = config_.hidden_size;
    AttentionLayerWeights weights;
    weights.q_proj = linear(2 * config_.attention_dim(), hidden);
    weights.k_proj = linear(config_.key_value_dim(), hidden);
    weights.v_proj = linear(config_.key_value_dim(), hidden);
    weights.o_proj = residual_linear(hidden, config_.attention_dim());
    weights.q_norm = vector(config_.head_dim, kZeroCentredNorm);
    weights.k_norm = vector(config_.head_dim, kZeroCentredNorm);
    return weights;
  }

  const ModelConfig& config_;
  WeightFormat format_;
  uint64_t seed_;
  const OpTable& ops_;
  Arena* arena_;
  size_t num_bytes_ = 0;
  uint64_t num_tensors_ = 0;
};

}  // namespace

Result<std::unique_ptr<SyntheticModel>> SyntheticModel::create(std::string_view size,
                                                               WeightFormat format, uint64_t seed,
                                                               const OpTable& ops) {
  SLUICE_ASSIGN_OR_RETURN(ModelConfig config, family_config(size));
  config.mtp_num_hidden_layers = 0;
  Maker counter(config, format, seed, ops, nullptr);
  counter.make();
  SLUICE_ASSIGN_OR_RETURN(
      Buffer buffer, ops.memory->allocate(counter.num_bytes(), "weights", MemoryKind::kPrivate));
  Arena arena(std::move(buffer));
  std::unique_ptr<SyntheticModel> model(new SyntheticModel);
  model->weights_ = Maker(config, format, seed, ops, &arena).make();
  model->buffer_ = arena.release();
  return model;
}

}  // namespace sluice
