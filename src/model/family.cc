#include "model/family.h"

#include <iterator>

#include "base/json.h"

namespace sluice {
namespace {

struct SizeRow {
  std::string_view name;
  int64_t hidden, intermediate, layers, heads, kv_heads, key_heads, value_heads;
  bool is_tied;
  int64_t vocab, positions;
};
constexpr int64_t kVocab = 248320;
constexpr int64_t kPositions = 262144;
constexpr SizeRow kSizes[] = {
    // name   hidden   mlp layers  nq nkv  Hk  Hv  tied   vocab   context
    {"tiny", 256, 512, 4, 4, 1, 1, 3, false, 512, 4096},
    {"0.8B", 1024, 3584, 24, 8, 2, 16, 16, true, kVocab, kPositions},
    {"2B", 2048, 6144, 24, 8, 2, 16, 16, true, kVocab, kPositions},
    {"4B", 2560, 9216, 32, 16, 4, 16, 32, true, kVocab, kPositions},
    {"9B", 4096, 12288, 32, 16, 4, 16, 32, false, kVocab, kPositions},
    {"27B", 5120, 17408, 64, 24, 4, 16, 48, false, kVocab, kPositions},
};

constexpr std::string_view kNames[] = {"tiny", "0.8B", "2B", "4B", "9B", "27B"};
static_assert(std::size(kNames) == std::size(kSizes));

constexpr int64_t kFullAttentionInterval = 4;
constexpr int32_t kEndOfText = 248044;

ModelConfig config_of(const SizeRow& row) {
  ModelConfig config;
  config.vocab_size = row.vocab;
  config.hidden_size = row.hidden;
  config.intermediate_size = row.intermediate;
  config.num_hidden_layers = row.layers;
  config.max_position_embeddings = row.positions;
  config.rms_norm_eps = 1e-6f;
  config.tie_word_embeddings = row.is_tied;
  for (int64_t i = 0; i < row.layers; ++i) {
    config.layer_types.push_back((i + 1) % kFullAttentionInterval == 0
                                     ? LayerType::kFullAttention
                                     : LayerType::kLinearAttention);
  }
  config.num_attention_heads = row.heads;
  config.num_key_value_heads = row.kv_heads;
  config.head_dim = 256;
  config.rotary_dim = 64;
  config.rope_theta = 1e7;
  config.linear_num_key_heads = row.key_heads;
  config.linear_num_value_heads = row.value_heads;
  config.linear_key_head_dim = 128;
  config.linear_value_head_dim = 128;
  config.linear_conv_kernel_dim = 4;
  config.mtp_num_hidden_layers = 1;
  config.eos_token_ids = {row.vocab == kVocab ? kEndOfText : 0};
  return config;
}

JsonValue id_list(const std::vector<int32_t>& ids) {
  std::vector<JsonValue> items;
  for (const int32_t id : ids) items.push_back(JsonValue::integer(id));
  return JsonValue::array(std::move(items));
}

JsonValue rope_parameters(const ModelConfig& config) {
  // Time, height and width share the rotary pairs, [11, 11, 10] in the published files.
  constexpr int32_t kAxes = 3;
  const auto pairs = static_cast<int32_t>(config.rotary_dim / 2);
  std::vector<int32_t> section;
  for (int32_t axis = 0; axis < kAxes; ++axis) {
    section.push_back(pairs / kAxes + (axis < pairs % kAxes ? 1 : 0));
  }
  JsonValue rope = JsonValue::object();
  rope.set("mrope_interleaved", JsonValue::boolean(true));
  rope.set("mrope_section", id_list(section));
  rope.set("partial_rotary_factor", JsonValue::real(static_cast<double>(config.rotary_dim) /
                                                    static_cast<double>(config.head_dim)));
  rope.set("rope_theta", JsonValue::real(config.rope_theta));
  rope.set("rope_type", JsonValue::string("default"));
  return rope;
}

JsonValue text_config(const ModelConfig& config) {
  JsonValue text = JsonValue::object();
  const auto set_int = [&](const char* key, int64_t value) {
    text.set(key, JsonValue::integer(value));
  };
  text.set("attention_bias", JsonValue::boolean(false));
  text.set("attn_output_gate", JsonValue::boolean(true));
  text.set("dtype", JsonValue::string("bfloat16"));
  if (!config.eos_token_ids.empty()) set_int("eos_token_id", config.eos_token_ids[0]);
  set_int("head_dim", config.head_dim);
  text.set("hidden_act", JsonValue::string("silu"));
  set_int("hidden_size", config.hidden_size);
  set_int("intermediate_size", config.intermediate_size);
  std::vector<JsonValue> types;
  for (const LayerType type : config.layer_types) {
    types.push_back(JsonValue::string(std::string(layer_type_name(type))));
  }
  text.set("layer_types", JsonValue::array(std::move(types)));
  set_int("linear_conv_kernel_dim", config.linear_conv_kernel_dim);
  set_int("linear_key_head_dim", config.linear_key_head_dim);
  set_int("linear_num_key_heads", config.linear_num_key_heads);
  set_int("linear_num_value_heads", config.linear_num_value_heads);
  set_int("linear_value_head_dim", config.linear_value_head_dim);
  text.set("mamba_ssm_dtype", JsonValue::string("float32"));
  set_int("max_position_embeddings", config.max_position_embeddings);
  text.set("model_type", JsonValue::string("qwen3_5_text"));
  set_int("mtp_num_hidden_layers", config.mtp_num_hidden_layers);
  text.set("mtp_use_dedicated_embeddings", JsonValue::boolean(false));
  set_int("num_attention_heads", config.num_attention_heads);
  set_int("num_hidden_layers", config.num_hidden_layers);
  set_int("num_key_value_heads", config.num_key_value_heads);
  text.set("rms_norm_eps", JsonValue::number(fmt::format("{}", config.rms_norm_eps)));
  text.set("rope_parameters", rope_parameters(config));
  text.set("tie_word_embeddings", JsonValue::boolean(config.tie_word_embeddings));
  set_int("vocab_size", config.vocab_size);
  return text;
}

JsonValue quantization_config() {
  JsonValue quantization = JsonValue::object();
  quantization.set("activation_scheme", JsonValue::string("dynamic"));
  quantization.set("fmt", JsonValue::string("e4m3"));
  quantization.set("quant_method", JsonValue::string("fp8"));
  quantization.set("weight_block_size", id_list({128, 128}));
  return quantization;
}

}  // namespace

std::span<const std::string_view> family_sizes() {
  return kNames;
}

Result<ModelConfig> family_config(std::string_view size) {
  for (const SizeRow& row : kSizes) {
    if (row.name == size) return config_of(row);
  }
  return invalid_argument("no size \"{}\"; expected one of {}", size, fmt::join(kNames, ", "));
}

Status keep_first_layers(ModelConfig* config, int64_t num_layers) {
  if (num_layers < 1 || num_layers > config->num_hidden_layers) {
    return invalid_argument("{} layers asked for; expected 1 to {}", num_layers,
                            config->num_hidden_layers);
  }
  config->num_hidden_layers = num_layers;
  config->layer_types.resize(static_cast<size_t>(num_layers));
  return Status();
}

StorageFormat family_format(std::string_view size, WeightFormat linears) {
  StorageFormat format;
  format.linears = linears;
  format.gdn_vectors = size == "27B" ? Dtype::kBf16 : Dtype::kF32;
  return format;
}

std::string config_json(const ModelConfig& config, const StorageFormat& format) {
  JsonValue root = JsonValue::object();
  root.set("architectures",
           JsonValue::array({JsonValue::string("Qwen3_5ForConditionalGeneration")}));
  root.set("model_type", JsonValue::string("qwen3_5"));
  if (format.linears == WeightFormat::kFp8Block128) {
    root.set("quantization_config", quantization_config());
  }
  root.set("text_config", text_config(config));
  root.set("tie_word_embeddings", JsonValue::boolean(config.tie_word_embeddings));
  return dump_json_python(root) + "\n";
}

}  // namespace sluice
