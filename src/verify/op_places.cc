#include "verify/op_places.h"

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

std::vector<OpPlace> mtp_places(const ModelConfig&) {
  std::vector<OpPlace> places = {{"rms_norm", -1, "mtp.", {"hidden"}},
                                 {"embed", -1, "mtp.", {"embed"}},
                                 {"rms_norm", -1, "mtp.", {"embedding"}},
                                 {"linear", -1, "mtp.", {"fc"}}};
  add_layer(&places, 0, "mtp.layers.0.", LayerType::kFullAttention);
  places.push_back({"rms_norm", -1, "mtp.", {"norm"}});
  places.push_back({"linear", -1, "mtp.", {"logits"}});
  return places;
}

}  // namespace sluice
