#pragma once
// What `sluice info` says about a model, as text: configuration, tensors, byte budget, floor.

#include <optional>
#include <span>
#include <string>

#include "model/budget.h"
#include "model/config.h"
#include "model/tensor_table.h"

namespace sluice {

/// `tensors` are a checkpoint's (LoadedModel::tensors) or a table's.
std::string describe_config(const ModelConfig& config, const GenerationConfig& generation,
                            std::span<const int32_t> stop_token_ids);
/// Found against what config.json implies, by part and by dtype; with totals in bytes.
std::string describe_tensors(const ModelConfig& config, std::span<const TensorSpec> tensors);
/// Bytes one step reads, memory of one sequence, and the time both take at a bandwidth.
/// `bandwidth_gbs` in 10^9 bytes a second; without it there is no floor.
std::string describe_budget(const ModelConfig& config, std::span<const TensorSpec> tensors,
                            std::optional<double> bandwidth_gbs);

/// "26.91 GB" (powers of 1000) and "2.13 GiB" (powers of 1024).
std::string decimal_bytes(int64_t bytes);
std::string binary_bytes(int64_t bytes);
/// "26,909,012,345".
std::string grouped(int64_t value);

}  // namespace sluice
