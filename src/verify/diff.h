#pragma once
// Two backends, op by op: which op departs first.

#include <optional>
#include <string>

#include "verify/model_runner.h"
#include "verify/op_values.h"

namespace sluice {

struct DiffOptions {
  /// Look from here on: behind the output `after` of `layer` (-1: from the embedding on).
  int64_t layer = -1;
  std::string after;  // an output's name (op_places.h); "": from the layer's first op on
  /// Allowed for one element, in the units of UlpDifference. 0 asks for equal bits.
  double max_ulps = 2.0;
  int num_threads = 0;
};

/// The first op whose output differs by more, and the element where it differs most.
struct Departure {
  std::string tensor;  // "layers.3.core"
  std::string op;
  UlpDifference difference;
  int64_t position = 0;    // of the element's row in the sequence
  int64_t plain_ulps = 0;  // representable values between the two
};

struct DiffResult {
  std::optional<Departure> departure;
  int64_t num_compared = 0;  // outputs
  double largest = 0.0;      // of their elements' differences
  std::string largest_tensor;
};

/// Runs ids on `a`, then on `b`, the last few one row at a time; behind every op b's outputs are compared with a's and
/// replaced by them, so that a difference belongs to that op alone. Only what lies in the state (keys, values, recurrent and conv state) is each
/// backend's own: a difference there shows in the op that reads it. kInvalidArgument: no such layer or output.
Result<DiffResult> diff_backends(const ModelWeights& weights, const Backend& a, const Backend& b,
                                 std::span<const int32_t> ids, const DiffOptions& options);

}  // namespace sluice
