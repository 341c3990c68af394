#pragma once
// The published sizes by name, plus a tiny one of the same shape for tests.

#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/tensor_table.h"

namespace sluice {

/// "tiny", "0.8B", "2B", "4B", "9B", "27B".
std::span<const std::string_view> family_sizes();

/// kInvalidArgument, listing the sizes, when there is none of that name. Source: model-spec 1.1, 1.2.
Result<ModelConfig> family_config(std::string_view size);

/// Leaves the first `num_layers` layers: a shallow model whose every layer has the size's shape.
/// kInvalidArgument unless 1 <= num_layers <= the config's.
Status keep_first_layers(ModelConfig* config, int64_t num_layers);

/// How that size is published: Qwen3.5 stores A_log and linear_attn.norm as F32, the 27B of 3.6 and 3.8 as BF16.
StorageFormat family_format(std::string_view size, WeightFormat linears);

/// A config.json that parse_model_config reads back to `config`.
std::string config_json(const ModelConfig& config, const StorageFormat& format);

}  // namespace sluice
