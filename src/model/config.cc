#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "model/json_fields.h"

namespace sluice {
namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;

// What the family is, whatever the size; kernels and state layouts are built for these.
constexpr int64_t kHeadDim = 256;
constexpr int64_t kLinearHeadDim = 128;
constexpr int64_t kConvKernelDim = 4;

// Bounds are far above any published size and keep every product used later inside int64.
constexpr int64_t kVocabMax = int64_t{1} << 22;
constexpr int64_t kWidthMax = int64_t{1} << 20;
constexpr int64_t kLayersMax = 1024;
constexpr int64_t kHeadsMax = 1024;
constexpr int64_t kPositionsMax = int64_t{1} << 24;

Status read_integer(const JsonFields& fields, std::string_view key, int64_t max, int64_t* out) {
  SLUICE_ASSIGN_OR_RETURN(*out, fields.integer(key, 1, max));
  return Status();
}

Status require_size(const JsonFields& fields, std::string_view key, int64_t expected,
                    int64_t* out) {
  SLUICE_RETURN_IF_ERROR(read_integer(fields, key, kWidthMax, out));
  if (*out == expected) return Status();
  return unsupported("{}: {} is {}; this family has {}", fields.file(), fields.path(key), *out,
                     expected);
}

// A field that may be absent and otherwise must spell one of `allowed` (compact JSON).
struct FixedField {
  std::string_view key;
  std::initializer_list<std::string_view> allowed;
};

Status check_fixed_fields(const JsonFields& text) {
  static const FixedField kFields[] = {
      {"hidden_act", {"\"silu\""}},
      {"output_gate_type", {"\"swish\"", "\"silu\""}},  // 3.6 and later; 3.5 files omit it
      {"attn_output_gate", {"true"}},
      {"attention_bias", {"false"}},
      {"mlp_only_layers", {"[]"}},  // 3.5 files only
      {"mtp_use_dedicated_embeddings", {"false"}},
      {"use_sliding_window", {"false"}},
  };
  for (const FixedField& field : kFields) {
    const JsonValue* value = text.find(field.key);
    if (value == nullptr) continue;
    const std::string spelled = dump_json(*value);
    if (std::find(field.allowed.begin(), field.allowed.end(), spelled) != field.allowed.end()) {
      continue;
    }
    return unsupported("{}: {} is {}; this family has {}", text.file(), text.path(field.key),
                       shown(*value), fmt::join(field.allowed, " or "));
  }
  return Status();
}

Status check_model_type(const JsonFields& fields) {
  SLUICE_ASSIGN_OR_RETURN(const std::string type, fields.text("model_type"));
  if (type == "qwen3_5" || type == "qwen3_5_text") return Status();
  return unsupported(
      "{}: {} is \"{}\"; this engine runs the dense family \"qwen3_5\" (or \"qwen3_5_text\") only",
      fields.file(), fields.path("model_type"), shown_name(type));
}

Status read_sizes(const JsonFields& text, ModelConfig* config) {
  SLUICE_RETURN_IF_ERROR(read_integer(text, "vocab_size", kVocabMax, &config->vocab_size));
  SLUICE_RETURN_IF_ERROR(read_integer(text, "hidden_size", kWidthMax, &config->hidden_size));
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "intermediate_size", kWidthMax, &config->intermediate_size));
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "num_hidden_layers", kLayersMax, &config->num_hidden_layers));
  SLUICE_RETURN_IF_ERROR(read_integer(text, "max_position_embeddings", kPositionsMax,
                                      &config->max_position_embeddings));
  SLUICE_ASSIGN_OR_RETURN(const double eps, text.real("rms_norm_eps", 1e-12, 1e-2));
  config->rms_norm_eps = static_cast<float>(eps);
  return Status();
}

Status check_divides(const JsonFields& text, std::string_view whole_key, int64_t whole,
                     std::string_view part_key, int64_t part) {
  if (whole % part == 0) return Status();
  return invalid_argument("{}: {} is {}; expected a multiple of {}, which is {}", text.file(),
                          text.path(whole_key), whole, part_key, part);
}

Status read_heads(const JsonFields& text, ModelConfig* config) {
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "num_attention_heads", kHeadsMax, &config->num_attention_heads));
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "num_key_value_heads", kHeadsMax, &config->num_key_value_heads));
  SLUICE_RETURN_IF_ERROR(require_size(text, "head_dim", kHeadDim, &config->head_dim));
  SLUICE_RETURN_IF_ERROR(check_divides(text, "num_attention_heads", config->num_attention_heads,
                                       "num_key_value_heads", config->num_key_value_heads));
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "linear_num_key_heads", kHeadsMax, &config->linear_num_key_heads));
  SLUICE_RETURN_IF_ERROR(
      read_integer(text, "linear_num_value_heads", kHeadsMax, &config->linear_num_value_heads));
  SLUICE_RETURN_IF_ERROR(
      require_size(text, "linear_key_head_dim", kLinearHeadDim, &config->linear_key_head_dim));
  SLUICE_RETURN_IF_ERROR(
      require_size(text, "linear_value_head_dim", kLinearHeadDim, &config->linear_value_head_dim));
  SLUICE_RETURN_IF_ERROR(require_size(text, "linear_conv_kernel_dim", kConvKernelDim,
                                      &config->linear_conv_kernel_dim));
  return check_divides(text, "linear_num_value_heads", config->linear_num_value_heads,
                       "linear_num_key_heads", config->linear_num_key_heads);
}

Status read_layer_types(const JsonFields& text, ModelConfig* config) {
  const auto num_layers = static_cast<size_t>(config->num_hidden_layers);
  const JsonValue* list = text.find("layer_types");
  if (list == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t interval,
                            text.integer("full_attention_interval", 1, kLayersMax));
    for (int64_t i = 0; i < config->num_hidden_layers; ++i) {
      config->layer_types.push_back((i + 1) % interval == 0 ? LayerType::kFullAttention
                                                            : LayerType::kLinearAttention);
    }
    return Status();
  }
  if (!list->is_array()) return text.wrong("layer_types", "an array of layer types");
  if (list->items().size() != num_layers) {
    return invalid_argument("{}: {} has {} entries; num_hidden_layers is {}", text.file(),
                            text.path("layer_types"), list->items().size(), num_layers);
  }
  for (size_t i = 0; i < num_layers; ++i) {
    const JsonValue& item = list->items()[i];
    const std::string_view name = item.is_string() ? std::string_view(item.text()) : "";
    const bool is_full = name == layer_type_name(LayerType::kFullAttention);
    if (!is_full && name != layer_type_name(LayerType::kLinearAttention)) {
      return unsupported(
          "{}: {}[{}] is {}; this family has \"linear_attention\" or "
          "\"full_attention\"",
          text.file(), text.path("layer_types"), i, shown(item));
    }
    config->layer_types.push_back(is_full ? LayerType::kFullAttention
                                          : LayerType::kLinearAttention);
  }
  return Status();
}

Status check_rope_type(const JsonFields& rope) {
  for (const std::string_view key : {"rope_type", "type"}) {
    if (!rope.has(key)) continue;
    SLUICE_ASSIGN_OR_RETURN(const std::string type, rope.text(key));
    if (type == "default") continue;
    return unsupported(
        "{}: {} is \"{}\"; only \"default\" is supported (remove the scaling to run "
        "with the native context)",
        rope.file(), rope.path(key), shown_name(type));
  }
  return Status();
}

Status check_mrope_section(const JsonFields& rope, int64_t num_pairs) {
  if (!rope.has("mrope_section")) return Status();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> section,
                          rope.ids("mrope_section", 0, static_cast<int32_t>(kHeadDim)));
  int64_t sum = 0;
  for (const int32_t width : section) sum += width;
  if (sum == num_pairs) return Status();
  return invalid_argument("{}: {} adds up to {}; the rotary width implies {}", rope.file(),
                          rope.path("mrope_section"), sum, num_pairs);
}

Status read_rope(const JsonFields& text, ModelConfig* config) {
  const JsonValue* object = text.find("rope_parameters");
  if (object == nullptr || !object->is_object()) return text.wrong("rope_parameters", "an object");
  const JsonFields rope(*object, text.file(), text.path("rope_parameters."));
  SLUICE_RETURN_IF_ERROR(check_rope_type(rope));
  SLUICE_ASSIGN_OR_RETURN(config->rope_theta, rope.real("rope_theta", 1.0, 1e12));
  const JsonFields& partial = rope.has("partial_rotary_factor") ? rope : text;
  SLUICE_ASSIGN_OR_RETURN(const double factor, partial.real("partial_rotary_factor", 0.0, 1.0));
  const double width = factor * static_cast<double>(config->head_dim);
  config->rotary_dim = static_cast<int64_t>(std::lround(width));
  if (config->rotary_dim == 0 || config->rotary_dim % 2 != 0 ||
      std::abs(width - static_cast<double>(config->rotary_dim)) > 1e-9) {
    return partial.wrong(
        "partial_rotary_factor",
        fmt::format("a fraction of head_dim {} that gives an even width", kHeadDim));
  }
  return check_mrope_section(rope, config->rotary_dim / 2);
}

// Both levels carry it in published files; they must agree where both do.
Status read_tie(const JsonFields& top, const JsonFields& text, ModelConfig* config) {
  const JsonFields& first = text.has("tie_word_embeddings") ? text : top;
  SLUICE_ASSIGN_OR_RETURN(config->tie_word_embeddings, first.boolean("tie_word_embeddings"));
  if (!top.has("tie_word_embeddings")) return Status();
  SLUICE_ASSIGN_OR_RETURN(const bool at_top, top.boolean("tie_word_embeddings"));
  if (at_top == config->tie_word_embeddings) return Status();
  return invalid_argument("{}: tie_word_embeddings is {}, but {} is {}", top.file(), at_top,
                          text.path("tie_word_embeddings"), config->tie_word_embeddings);
}

Status read_eos(const JsonFields& top, const JsonFields& text, ModelConfig* config) {
  const auto max = static_cast<int32_t>(config->vocab_size - 1);
  SLUICE_ASSIGN_OR_RETURN(config->eos_token_ids, text.ids("eos_token_id", 0, max));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> more, top.ids("eos_token_id", 0, max));
  config->eos_token_ids.insert(config->eos_token_ids.end(), more.begin(), more.end());
  return Status();
}

// The weights' formats come from the shards' headers; this only refuses schemes whose tensors mean something else.
Status check_quantization(const JsonFields& fields) {
  const JsonValue* object = fields.find("quantization_config");
  if (object == nullptr) return Status();
  if (!object->is_object()) return fields.wrong("quantization_config", "an object");
  static const FixedField kFields[] = {
      {"quant_method", {"\"fp8\""}},
      {"fmt", {"\"e4m3\""}},
      {"activation_scheme", {"\"dynamic\""}},
      {"weight_block_size", {"[128,128]"}},
  };
  for (const FixedField& field : kFields) {
    const JsonValue* value = object->find(field.key);
    if (value != nullptr && dump_json(*value) == *field.allowed.begin()) continue;
    return unsupported("{}: {}.{} is {}; block FP8 of this family has {}", fields.file(),
                       fields.path("quantization_config"), field.key,
                       value == nullptr ? "missing" : shown(*value), *field.allowed.begin());
  }
  return Status();
}

Result<ModelConfig> read_config(const JsonFields& top, const JsonFields& text) {
  SLUICE_RETURN_IF_ERROR(check_model_type(top));
  if (text.has("model_type")) SLUICE_RETURN_IF_ERROR(check_model_type(text));
  SLUICE_RETURN_IF_ERROR(check_fixed_fields(text));
  if (!text.has("hidden_act")) return text.wrong("hidden_act", "\"silu\"");
  ModelConfig config;
  SLUICE_RETURN_IF_ERROR(read_sizes(text, &config));
  SLUICE_RETURN_IF_ERROR(read_heads(text, &config));
  SLUICE_RETURN_IF_ERROR(read_layer_types(text, &config));
  SLUICE_RETURN_IF_ERROR(read_rope(text, &config));
  SLUICE_RETURN_IF_ERROR(read_tie(top, text, &config));
  SLUICE_RETURN_IF_ERROR(read_eos(top, text, &config));
  SLUICE_RETURN_IF_ERROR(check_quantization(top));
  SLUICE_RETURN_IF_ERROR(check_quantization(text));
  if (text.has("mtp_num_hidden_layers")) {
    SLUICE_ASSIGN_OR_RETURN(config.mtp_num_hidden_layers,
                            text.integer("mtp_num_hidden_layers", 0, 1));
  }
  return config;
}

Result<JsonValue> parse_object(std::string_view json, std::string_view file) {
  JsonLimits limits;
  limits.max_depth = 16;
  limits.max_bytes = kConfigBytesMax;
  Result<JsonValue> value = parse_json(json, limits);
  if (!value.ok()) return value.status().with_context(file);
  if (!value->is_object()) return invalid_argument("{}: expected a JSON object", file);
  return value;
}

}  // namespace

std::string_view layer_type_name(LayerType type) {
  return type == LayerType::kFullAttention ? "full_attention" : "linear_attention";
}

int64_t ModelConfig::num_full_attention_layers() const {
  return std::count(layer_types.begin(), layer_types.end(), LayerType::kFullAttention);
}

int64_t ModelConfig::num_linear_attention_layers() const {
  return std::count(layer_types.begin(), layer_types.end(), LayerType::kLinearAttention);
}

Result<ModelConfig> parse_model_config(std::string_view json, std::string_view file) {
  SLUICE_ASSIGN_OR_RETURN(const JsonValue root, parse_object(json, file));
  const JsonFields top(root, file, "");
  const JsonValue* nested = top.find("text_config");
  if (nested == nullptr) return read_config(top, top);
  if (!nested->is_object()) return top.wrong("text_config", "an object");
  return read_config(top, JsonFields(*nested, file, "text_config."));
}

Result<ModelConfig> load_model_config(const Path& dir) {
  const Path path = dir / "config.json";
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  return parse_model_config(text, path.string());
}

}  // namespace sluice
