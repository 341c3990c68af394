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

}  // namespace sluice
