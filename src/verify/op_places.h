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
std::vector<OpPlace> mtp_places();

/// Shape of a golden's op tensor for a prompt of num_ids; empty for a name that no place has.
std::vector<int64_t> op_tensor_shape(const ModelConfig& config, std::string_view name,
                                     int64_t num_ids);

}  // namespace sluice
