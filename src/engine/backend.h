#pragma once

#include <string_view>

#include "base/status.h"
#include "decode/prefill.h"
#include "ops/op_table.h"

namespace sluice {

struct Backend {
  const OpTable* ops = nullptr;
  /// The form that measures faster for prompts on this backend.
  GdnForm prefill_form = GdnForm::kStep;
  /// Rows of one step of a prompt, multiples of kGdnChunk: what suits this backend, and the most it takes.
  int64_t prefill_rows = 512;
  int64_t prefill_rows_max = 65536;
  PrefillMath prefill_math = PrefillMath::kExact;
};

/// `device` auto | cpu | cuda; `isa` empty (the best this machine has), an instruction set's name, or ref; with cuda portable: the projections
/// (mma.sync) that any GPU has, whatever this one has besides. Prompts then run as decode's steps. `prefill_math` exact, or fp8 where the backend has kernels for it:
/// faster prompts, of which activations are rounded to e4m3; decode stays as it is.
Result<Backend> choose_backend(std::string_view device, std::string_view isa,
                               std::string_view prefill_math = "exact");

}  // namespace sluice
