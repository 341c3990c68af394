#pragma once

#include <memory>
#include <string>

#include "model/weights.h"
#include "ops/op_table.h"

namespace sluice {

/// A published size with random weights that are made where the CUDA backend keeps them; no file is read and no checkpoint has the same bits. Values depend on size, format and seed
/// alone. As in model/synth.h, activations keep their size through the layers and logits have a spread of about 2. Without the draft head.
class SyntheticModel {
 public:
  /// `ops` is the CUDA backend's table. kInvalidArgument for a size that is not published, kResourceExhausted when it does not fit.
  static Result<std::unique_ptr<SyntheticModel>> create(std::string_view size, WeightFormat format,
                                                        uint64_t seed, const OpTable& ops);

  const ModelWeights& weights() const { return weights_; }
  size_t num_bytes() const { return buffer_.size(); }

 private:
  SyntheticModel() = default;
  ModelWeights weights_;
  Buffer buffer_;
};

}  // namespace sluice
