#pragma once
// Cases of gdn_step and gdn_chunk: both take the same arguments.

#include "tests/ops/op_cases.h"

namespace sluice {

struct GdnRun {
  int32_t position;
  int32_t rows;
  bool checkpoint = false;
};

struct GdnCase {
  int64_t k_heads;
  int64_t v_heads;
  std::vector<GdnRun> runs = {};
  int64_t k_dim = 128;
  int64_t v_dim = 128;
  /// Typical magnitude of q and k before they are normalised; 1e-3 is where the eps shows.
  double qk = 0.5;
  double g_low = 1e-4;
  double g_high = 20.0;
  int64_t pad = 0;
  /// All keys alike, no decay, beta 1: the worst case of the triangular solve.
  bool same_keys = false;
};

OpCase gdn_case(const GdnCase& params, GdnForm form);

}  // namespace sluice
