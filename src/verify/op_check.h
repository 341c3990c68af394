#pragma once
// Every op on the oracle's own inputs: behind an op its outputs are compared and then replaced by the oracle's, so a
// difference belongs to that op alone.

#include "verify/golden.h"
#include "verify/model_runner.h"
#include "verify/report.h"

namespace sluice {

/// One check for each part of the model with the worst of its outputs, and one for each output that fails.
Status check_ops(const ModelWeights& weights, const Backend& backend, const GoldenOps& golden,
                 int num_threads, VerifyReport* report);

}  // namespace sluice
