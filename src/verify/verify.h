#pragma once
// Is this model on this backend right? Against the oracle where there is a golden, against itself always.

#include <optional>

#include "verify/golden.h"
#include "verify/identity.h"
#include "verify/report.h"

namespace sluice {

struct VerifyOptions {
  int num_threads = 0;
  /// Longer recorded prompts are not run; the envelope is made of all. 0: every prompt.
  int64_t num_ids_max = 0;
  /// The bit-identity battery, which needs no oracle.
  bool identity = true;
  int num_cuts = 12;
  /// Of the bit-identity runs: several chunks of 64, more than one KV page, short enough for a slow backend.
  int64_t num_identity_ids = 300;
  uint64_t seed = 1;
  /// With a golden: another backend whose top-1 must be the same where it is not in doubt.
  std::optional<Backend> against;
};

/// Accuracy (with `golden`), the recurrence against fp64, and the bit-identity battery. `golden` may be null.
/// The status is an error when the checks could not run; a wrong engine is a failed report.
Result<VerifyReport> verify_model(const ModelWeights& weights, const Backend& backend,
                                  const Golden* golden, const VerifyOptions& options);

}  // namespace sluice
