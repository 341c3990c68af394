#pragma once

#include <functional>

#include "model/weights.h"
#include "ops/op_table.h"

namespace sluice {

/// Bytes of a checkpoint brought to the backend so far, and in all.
struct PlacingProgress {
  size_t num_bytes = 0;
  size_t num_bytes_total = 0;
};
using OnPlacing = std::function<void(const PlacingProgress&)>;

/// A model's weights where a backend reads them. On the host that is the checkpoint's own map; a device gets a copy,
/// projections as OpTable::place_weight keeps them, all else in the checkpoint's order.
class PlacedWeights {
 public:
  /// `weights` outlives it where memory is the host's. `on_placing`, which may be null, is called behind each projection of a
  /// copy. kResourceExhausted when they do not fit.
  static Result<PlacedWeights> create(const ModelWeights& weights, const OpTable& ops,
                                      const OnPlacing& on_placing);

  const ModelWeights& weights() const { return weights_; }
  /// Of a copy: its size and how long it took. Zero where nothing was copied.
  size_t num_bytes() const { return buffer_.size(); }
  double seconds() const { return seconds_; }

 private:
  ModelWeights weights_;
  Buffer buffer_;
  double seconds_ = 0.0;
};

}  // namespace sluice
