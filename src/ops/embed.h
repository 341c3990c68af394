#pragma once

#include <span>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op_context.h"

namespace sluice {

/// out[i] = table[token_ids[i]]: a row copy, no scaling.
///
/// table  [vocab_size, hidden] bf16
/// out    [num_rows, hidden]   bf16
/// Pre: 0 <= token id < vocab_size (the engine refuses others earlier).
struct EmbedArgs {
  MatView<const bf16> table;
  std::span<const int32_t> token_ids;
  MatView<bf16> out;
};

/// out[i] = x[rows[i]]: the rows whose logits are wanted, ahead of the head.
///
/// x    [num_rows, hidden]  bf16
/// out  [>= rows.size(), hidden] bf16; rows of it behind the list are of no interest
/// A backend with a step block reads the list there; it is the step's own (StepRows::logit_rows).
struct GatherArgs {
  MatView<const bf16> x;
  std::span<const int32_t> rows;
  MatView<bf16> out;
};

}  // namespace sluice
