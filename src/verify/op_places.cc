#include "verify/op_places.h"

#include <charconv>
#include <optional>
#include <span>

namespace sluice {
namespace {

void add_layer(std::vector<OpPlace>* places, int64_t layer, const std::string& prefix,
               LayerType type) {
  const auto add = [&](std::string_view op, std::vector<std::string_view> outputs) {
    places->push_back({op, layer, prefix, std::move(outputs)});
  };
  add("rms_norm", {"input_layernorm"});
  if (type == LayerType::kLinearAttention) {
    add("linear", {"qkv", "z", "b", "a"});
    add("conv1d", {"conv"});
    add("gdn_gates", {"g", "beta"});
    add("gdn", {"core"});
    add("gated_rms_norm", {"gated"});
  } else {
    add("linear", {"qg", "k", "v"});
    add("attn_prepare", {"q"});
    add("attention", {"core"});
  }
  add("linear_residual", {"mixer"});
  add("rms_norm", {"post_attention_layernorm"});
  add("gate_up", {"mlp"});
  add("linear_residual", {"output"});
}

/// The kind of layer that "layers.3.conv" or "mtp.layers.0.q" is of; nothing outside the layers and for no layer.
std::optional<LayerType> layer_type_of(const ModelConfig& config, std::string_view name) {
  if (name.starts_with("mtp.layers.0.")) return LayerType::kFullAttention;
  constexpr std::string_view kPrefix = "layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t layer = -1;
  const char* begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  if (error != std::errc() || *end != '.' || layer < 0 || layer >= config.num_hidden_layers) {
    return std::nullopt;
  }
  return config.layer_types[static_cast<size_t>(layer)];
}

struct OutputWidth {
  std::string_view output;
  int64_t width;
};

int64_t find_width(std::span<const OutputWidth> widths, std::string_view output) {
  for (const OutputWidth& row : widths) {
    if (row.output == output) return row.width;
  }
  return 0;
}

/// 0 when there is no such output.
int64_t width_of(const ModelConfig& c, std::optional<LayerType> type, std::string_view output) {
  const OutputWidth outside[] = {{"norm", c.hidden_size},
                                 {"embedding", c.hidden_size},
                                 {"hidden", c.hidden_size},
                                 {"fc", c.hidden_size}};
  if (!type) return find_width(outside, output);
  const OutputWidth shared[] = {
      {"input", c.hidden_size},     {"input_layernorm", c.hidden_size},
      {"mixer", c.hidden_size},     {"post_attention_layernorm", c.hidden_size},
      {"mlp", c.intermediate_size}, {"output", c.hidden_size}};
  const OutputWidth gdn[] = {{"qkv", c.conv_dim()},
                             {"conv", c.conv_dim()},
                             {"z", c.linear_value_dim()},
                             {"core", c.linear_value_dim()},
                             {"gated", c.linear_value_dim()},
                             {"b", c.linear_num_value_heads},
                             {"a", c.linear_num_value_heads},
                             {"g", c.linear_num_value_heads},
                             {"beta", c.linear_num_value_heads}};
  const OutputWidth attention[] = {{"qg", 2 * c.attention_dim()}, {"k", c.key_value_dim()},
                                   {"v", c.key_value_dim()},      {"q", c.attention_dim()},
                                   {"key", c.key_value_dim()},    {"core", c.attention_dim()}};
  const int64_t width = find_width(shared, output);
  if (width > 0) return width;
  return *type == LayerType::kLinearAttention ? find_width(gdn, output)
                                              : find_width(attention, output);
}

}  // namespace

std::vector<OpPlace> forward_places(const ModelConfig& config) {
  std::vector<OpPlace> places = {{"embed", -1, "", {"embed"}}};
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    add_layer(&places, i, fmt::format("layers.{}.", i), config.layer_types[static_cast<size_t>(i)]);
  }
  places.push_back({"rms_norm", -1, "", {"norm"}});
  places.push_back({"linear", -1, "", {"logits"}});
  return places;
}

std::vector<OpPlace> mtp_places() {
  std::vector<OpPlace> places = {{"rms_norm", -1, "mtp.", {"hidden"}},
                                 {"embed", -1, "mtp.", {"embed"}},
                                 {"rms_norm", -1, "mtp.", {"embedding"}},
                                 {"linear", -1, "mtp.", {"fc"}}};
  add_layer(&places, 0, "mtp.layers.0.", LayerType::kFullAttention);
  places.push_back({"rms_norm", -1, "mtp.", {"norm"}});
  places.push_back({"linear", -1, "mtp.", {"logits"}});
  return places;
}

std::vector<int64_t> op_tensor_shape(const ModelConfig& config, std::string_view name,
                                     int64_t num_ids) {
  const bool is_draft = name.starts_with("mtp.");
  const int64_t rows = is_draft ? num_ids - 1 : num_ids;
  if (name == "logits") return {config.vocab_size};
  const std::string_view output = name.substr(name.rfind('.') + 1);
  const int64_t width = width_of(config, layer_type_of(config, name), output);
  if (width == 0) return {};
  return {rows, width};
}

}  // namespace sluice
