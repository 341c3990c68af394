#pragma once

#include "verify/difference.h"
#include "verify/model_runner.h"
#include "verify/report.h"

namespace sluice {

/// Two backends on the recorded prompts, at every position: where their best ids differ, both must have been in doubt, the id of
/// the other within the envelope's margin of their own best.
void check_agreement(ModelRunner& ours, ModelRunner& theirs, const Golden& golden,
                     const Envelope& envelope, int64_t num_ids_max, VerifyReport* report);

}  // namespace sluice
