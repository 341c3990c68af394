#pragma once
// The promises that need no oracle: the same bits whatever runs beside a row and however a prompt was cut.

#include "verify/model_runner.h"
#include "verify/report.h"

namespace sluice {

struct IdentityOptions {
  int num_threads = 0;  // of the runs that do not vary it
  int num_cuts = 12;
  /// Of the cuts and of ids that stand in for text.
  uint64_t seed = 1;
};

/// Runs `ids` (at least 40) in different ways and compares logits, hidden vectors and the whole state, bit for bit.
/// The value of a check is the number of comparisons that differ.
Status check_identity(const ModelWeights& weights, const Backend& backend,
                      std::span<const int32_t> ids, const IdentityOptions& options,
                      VerifyReport* report);

}  // namespace sluice
