#pragma once
// A long sequence through one GDN layer and what an fp64 recurrence makes of it: state and outputs,
// and how far a session is from both.

#include <map>
#include <vector>

#include "tests/ops/gdn_session.h"
#include "tests/ops/statistic_judge.h"

namespace sluice {

/// Gates of one value head, drawn from these ranges; decays log-uniform, 0 for none.
struct GatePlan {
  const char* name;
  double decay_low, decay_high;  // of -g
  double beta_low, beta_high;
};

/// Value heads 0 to 2 share random keys, 3 to 5 keys that are nearly parallel: these are overwritten
/// along one direction at every row, and remember all rows across it.
inline constexpr GatePlan kGatePlans[] = {
    {"strong", 1.0, 20.0, 0.0, 1.0},
    {"weak", 5e-5, 2e-4, 0.0, 1.0},
    {"mixed", 1e-4, 20.0, 0.0, 1.0},
    {"parallel keys, no decay", 0.0, 0.0, 0.9, 1.0},
    {"parallel keys, weak", 1e-6, 1e-4, 0.98, 1.0},
    {"parallel keys, mixed", 1e-6, 1.0, 0.9, 1.0},
};
inline constexpr GdnShape kDriftShape{.num_k_heads = 2, .num_v_heads = std::size(kGatePlans)};

/// q, k and v as conv and SiLU leave them; those of q and k times `qk`.
GdnSequence drift_sequence(int64_t num_rows, double qk);

class DriftTruth {
 public:
  /// Keeps the state after each of `marks` rows, and all outputs.
  DriftTruth(const GdnSequence& sequence, const std::vector<int64_t>& marks);

  /// The state after `position` rows, one of the marks: relative to its norm and to its largest value,
  /// head by head.
  Worst state_error(int64_t position, std::span<const float> state) const;
  /// Outputs of rows [first, last): what they must have been wrong by before their rounding, relative
  /// to the most that a column of the state can give.
  Worst output_error(int64_t first, int64_t last, const GdnSession& session) const;

 private:
  int64_t num_heads() const { return shape_.num_v_heads; }

  GdnShape shape_;
  std::map<int64_t, std::vector<double>> states_;
  std::vector<double> o_;      // [row][head][head_v_dim]
  std::vector<double> scale_;  // [row][head]
};

}  // namespace sluice
