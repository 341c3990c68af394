#pragma once
// Cases of attn_prepare and attention over a paged cache with shuffled pages.

#include "tests/ops/op_cases.h"

namespace sluice {

struct AttnRun {
  int32_t position;
  int32_t rows;
};

struct AttnCase {
  int64_t heads;
  int64_t kv_heads;
  std::vector<AttnRun> runs = {};
  int64_t head_dim = 256;
  int64_t rotary_dim = 64;
  /// Magnitude of the projections' outputs (attn_prepare), of q (attention).
  double magnitude = 1.0;
  int64_t pad = 0;
};

OpCase attn_prepare_case(const AttnCase& params);
OpCase attention_case(const AttnCase& params);

}  // namespace sluice
