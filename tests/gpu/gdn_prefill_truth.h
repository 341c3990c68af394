#pragma once
// What fp64 makes of a PrefillLayer, and how far a result is from it.

#include "tests/gpu/gdn_prefill_layer.h"

namespace sluice {

/// Worst or share over the judged heads.
struct PrefillErrors {
  double state = 0.0;       // / rms of the head's state
  double checkpoint = 0.0;  // likewise
  double operand =
      0.0;             // in bf16 units in the last place of the value, or of 2^-12 of the row's rms
  double flips = 0.0;  // share of operands that are not the rounded truth
};

/// The recurrence row by row from the kernels' own channels after conv and SiLU (one rounding there may fall either way).
PrefillErrors judge_prefill(const PrefillLayer& layer, std::span<const bf16> convolved,
                            const PrefillResult& result, std::span<const int> heads);

/// Share of channels after conv and SiLU that are not the rounded truth; infinite where one is off by more than a unit in the last place.
double judge_convolved(const PrefillLayer& layer, std::span<const bf16> convolved);

/// Rings as they must be.
std::vector<bf16> rings_behind(const PrefillLayer& layer);

}  // namespace sluice
