#include "decode/rehearsal.h"

#include <algorithm>

namespace sluice {
namespace {

/// Longer steps take so long that nobody records them.
constexpr int64_t kRowsMax = 64;

}  // namespace

void rehearse_steps(Forward& forward, StatePool& state, GdnForm prefill_form, int64_t rows_max,
                    int32_t num_defined) {
  // A prompt in the chunk form is not recorded, only the row behind it.
  const int64_t longest = prefill_form == GdnForm::kStep ? std::min(rows_max, kRowsMax) : 1;
  for (int64_t rows = 1; rows <= longest; rows *= 2) {
    forward.rehearse_rows({rows, 1, false, 0, true}, state);
    if (forward.can_draw()) forward.rehearse_rows({rows, 1, true, num_defined, false}, state);
  }
  // A piece of a prompt that another follows.
  if (longest > 1) forward.rehearse_rows({longest, 0, false, 0, false}, state);
}

}  // namespace sluice
