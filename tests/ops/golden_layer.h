#pragma once
// Decoder layers and the small golden model as chains of the arbiter's ops.

#include <string>
#include <vector>

#include "tests/ops/golden_run.h"

namespace sluice::golden {

/// Every intermediate of one layer over all positions, under the names the oracle's hooks gave them
/// ("linear_attn.in_proj_qkv.out", "self_attn.o_proj.in", "out", ...).
using Trace = std::vector<std::pair<std::string, Matrix<bf16>>>;

struct LayerRun {
  Matrix<bf16> out;
  Trace trace;
};

/// The first `num_prompt` rows in one call, the others one by one, as the oracle ran them.
LayerRun run_gdn_layer(const std::string& prefix, const Matrix<bf16>& x, int32_t num_prompt);
LayerRun run_attention_layer(const std::string& prefix, const Matrix<bf16>& x, int32_t num_prompt);

/// Rows of `m` by index.
Matrix<bf16> pick_rows(const Matrix<bf16>& m, const std::vector<int64_t>& rows);

}  // namespace sluice::golden
