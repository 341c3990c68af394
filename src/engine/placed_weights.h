#pragma once

#include "model/weights.h"
#include "ops/memory.h"

namespace sluice {

/// A model's weights where a backend reads them. On the host that is the checkpoint's own map; a device gets a copy,
/// in the checkpoint's order.
class PlacedWeights {
 public:
  /// `weights` outlives it where memory.is_host. kResourceExhausted when they do not fit.
  static Result<PlacedWeights> create(const ModelWeights& weights, const MemoryTable& memory);

  const ModelWeights& weights() const { return weights_; }

 private:
  ModelWeights weights_;
  Buffer buffer_;
};

}  // namespace sluice
