#pragma once
// The recurrence once more, in fp64 and independent of ops/ref, with a switch for each mistake a
// port can make: the negative controls of gdn_step and gdn_chunk.

#include <vector>

#include "ops/gdn.h"

namespace sluice {

enum class GdnMistake {
  kNone,
  kDecayAfterUpdate,
  kReadBeforeUpdate,
  kEpsOnMean,
  kNoL2Norm,
  kQueryNotScaled,
  kKeyHeadModulo,  // tiled instead of grouped value heads
  kBetaOnOutput,
  kStateTransposed,
  kDecayNotExponentiated,
};

/// What one value head reads of a row: q and k normalised, q scaled.
struct GdnTwinRow {
  std::vector<double> q, k, v;
  double g, decay, beta;
};
GdnTwinRow read_gdn_twin_row(const GdnArgs& args, int64_t row, int64_t head,
                             GdnMistake mistake = GdnMistake::kNone);

/// One session's state of one layer, [num_v_heads, head_k_dim, head_v_dim], kept in fp64.
using GdnState64 = std::vector<double>;

/// Advances `state` by one row and returns its unrounded outputs, [value_width].
std::vector<double> gdn_twin_row(const GdnArgs& args, int64_t row, GdnState64& state,
                                 GdnMistake mistake = GdnMistake::kNone);

/// As an op: state loaded from fp32, stored as fp32.
void gdn_twin(const GdnArgs& args, GdnMistake mistake);

}  // namespace sluice
