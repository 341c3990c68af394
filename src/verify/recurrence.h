#pragma once

#include "engine/backend.h"
#include "model/config.h"
#include "verify/report.h"

namespace sluice {

/// Both forms of the gated delta rule on inputs that a model seldom shows (tiny keys, where the place of eps decides;
/// strong and weak decays; nearly parallel keys) against the same in fp64: outputs and state.
Status check_recurrence(const ModelConfig& config, const Backend& backend, int num_threads,
                        VerifyReport* report);

}  // namespace sluice
