#include "model/tensor_table.h"

namespace sluice {
namespace {

class TableBuilder {
 public:
  TableBuilder(const ModelConfig& config, const StorageFormat& format)
      : config_(config), format_(format) {}

  std::vector<TensorSpec> build() && {
    const int64_t hidden = config_.hidden_size;
    const std::string text(kTextPrefix);
    add(text + "embed_tokens.weight", TensorRole::kEmbedding, {config_.vocab_size, hidden});
    for (layer_idx_ = 0; layer_idx_ < config_.num_hidden_layers; ++layer_idx_) {
      const std::string prefix = fmt::format("{}layers.{}.", kTextPrefix, layer_idx_);
      add_layer(prefix, config_.layer_types[static_cast<size_t>(layer_idx_)]);
    }
    layer_idx_ = -1;
    add(text + "norm.weight", TensorRole::kZeroCentredNorm, {hidden});
    if (!config_.tie_word_embeddings) {
      add("lm_head.weight", TensorRole::kLmHead, {config_.vocab_size, hidden});
    }
    if (format_.has_mtp) add_mtp();
    return std::move(table_);
  }

 private:
  void add(std::string name, TensorRole role, std::vector<int64_t> shape,
           Dtype dtype = Dtype::kBf16) {
    table_.push_back({std::move(name), role, dtype, std::move(shape), layer_idx_, is_mtp_});
  }

  void add_linear(const std::string& module, int64_t num_out, int64_t num_in) {
    const bool is_fp8 = format_.linears == WeightFormat::kFp8Block128;
    const std::string name = module + ".weight";
    add(name, TensorRole::kLinear, {num_out, num_in}, is_fp8 ? Dtype::kF8E4M3 : Dtype::kBf16);
    if (is_fp8) {
      add(name + std::string(kScaleSuffix), TensorRole::kScale, scale_shape(num_out, num_in),
          format_.scales);
    }
  }

  void add_gdn(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t heads = config_.linear_num_value_heads;
    add_linear(prefix + "in_proj_qkv", config_.conv_dim(), hidden);
    add_linear(prefix + "in_proj_z", config_.linear_value_dim(), hidden);
    add(prefix + "in_proj_b.weight", TensorRole::kPlainLinear, {heads, hidden});
    add(prefix + "in_proj_a.weight", TensorRole::kPlainLinear, {heads, hidden});
    add(prefix + "conv1d.weight", TensorRole::kConv1d,
        {config_.conv_dim(), 1, config_.linear_conv_kernel_dim});
    add(prefix + "A_log", TensorRole::kALog, {heads}, format_.gdn_vectors);
    add(prefix + "dt_bias", TensorRole::kDtBias, {heads});
    add(prefix + "norm.weight", TensorRole::kGatedNorm, {config_.linear_value_head_dim},
        format_.gdn_vectors);
    add_linear(prefix + "out_proj", hidden, config_.linear_value_dim());
  }

  void add_attention(const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    add_linear(prefix + "q_proj", 2 * config_.attention_dim(), hidden);
    add_linear(prefix + "k_proj", config_.key_value_dim(), hidden);
    add_linear(prefix + "v_proj", config_.key_value_dim(), hidden);
    add_linear(prefix + "o_proj", hidden, config_.attention_dim());
    add(prefix + "q_norm.weight", TensorRole::kZeroCentredNorm, {config_.head_dim});
    add(prefix + "k_norm.weight", TensorRole::kZeroCentredNorm, {config_.head_dim});
  }

  void add_layer(const std::string& prefix, LayerType type) {
    const int64_t hidden = config_.hidden_size;
    add(prefix + "input_layernorm.weight", TensorRole::kZeroCentredNorm, {hidden});
    if (type == LayerType::kLinearAttention) {
      add_gdn(prefix + "linear_attn.");
    } else {
      add_attention(prefix + "self_attn.");
    }
    add(prefix + "post_attention_layernorm.weight", TensorRole::kZeroCentredNorm, {hidden});
    add_linear(prefix + "mlp.gate_proj", config_.intermediate_size, hidden);
    add_linear(prefix + "mlp.up_proj", config_.intermediate_size, hidden);
    add_linear(prefix + "mlp.down_proj", hidden, config_.intermediate_size);
  }

  void add_mtp() {
    const int64_t hidden = config_.hidden_size;
    is_mtp_ = true;
    add("mtp.fc.weight", TensorRole::kPlainLinear, {hidden, 2 * hidden});
    for (const char* name :
         {"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight"}) {
      add(name, TensorRole::kZeroCentredNorm, {hidden});
    }
    layer_idx_ = 0;
    add_layer("mtp.layers.0.", LayerType::kFullAttention);
  }

  const ModelConfig& config_;
  const StorageFormat& format_;
  std::vector<TensorSpec> table_;
  int64_t layer_idx_ = -1;
  bool is_mtp_ = false;
};

}  // namespace

int64_t TensorSpec::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

std::vector<int64_t> scale_shape(int64_t num_out, int64_t num_in) {
  const auto blocks = [](int64_t n) { return (n + kFp8BlockSize - 1) / kFp8BlockSize; };
  return {blocks(num_out), blocks(num_in)};
}

std::vector<TensorSpec> checkpoint_tensors(const ModelConfig& config, const StorageFormat& format) {
  return TableBuilder(config, format).build();
}

}  // namespace sluice
