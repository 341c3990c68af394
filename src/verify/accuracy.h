#pragma once
// The model against the oracle's recorded values: logits, states, continuation, draft head.

#include "verify/difference.h"
#include "verify/model_runner.h"
#include "verify/report.h"

namespace sluice {

/// Every case's prompt, its last positions again one row at a time, whole logit rows, states, the free-running
/// continuation and the draft head: appends one check for each prompt and one for each kind over all cases.
/// Longer cases than num_ids_max are left out (0: none).
void check_accuracy(ModelRunner& runner, const Golden& golden, const Envelope& envelope,
                    int64_t num_ids_max, VerifyReport* report);

}  // namespace sluice
