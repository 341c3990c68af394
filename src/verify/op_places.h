#pragma once
// The order in which forward calls the backend's ops, with a name for every output.

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace sluice {

/// One call of one op.
struct OpPlace {
  std::string_view op;  // as OpTap::after gets it
  int64_t layer = -1;   // -1 outside the layers
  std::string prefix;   // "layers.0.", "mtp.layers.0.", "mtp." or ""
  /// Of the outputs, in the op's order: prefix + output is the tensor's name in a golden.
  std::vector<std::string_view> outputs;

  std::string name(size_t output) const { return prefix + std::string(outputs[output]); }
};

/// forward_rows with logits; mtp_rows with logits.
std::vector<OpPlace> forward_places(const ModelConfig& config);
std::vector<OpPlace> mtp_places(const ModelConfig& config);

}  // namespace sluice
