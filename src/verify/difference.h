#pragma once
// How far one path's logits lie from the oracle's prompt path.

#include <cstdint>
#include <span>
#include <vector>

#include "verify/golden.h"

namespace sluice {

struct DifferenceStats {
  int64_t num_positions = 0;
  /// Of the positions' differences: the root mean square over the oracle's top ids there.
  double mean = 0.0, p50 = 0.0, p90 = 0.0, p99 = 0.0, max = 0.0;
  /// Largest difference of a single logit.
  double largest = 0.0;
  /// Positions whose best id is another one of the oracle's top ids, and the oracle's margin at the worst of them: its
  /// best logit less its logit of the other id.
  int64_t num_flips = 0;
  double worst_margin = 0.0;
  /// Positions whose best id is none of the oracle's top ids: no margin explains them.
  int64_t num_outside = 0;
};

class Difference {
 public:
  /// One position: the oracle's top ids and logits, this path's logits of the same ids and its best id.
  void add(std::span<const int32_t> ids, std::span<const bf16> oracle, std::span<const bf16> ours,
           int32_t best);
  void merge(const Difference& other);
  DifferenceStats stats() const;

 private:
  std::vector<double> per_position_;
  double largest_ = 0.0;
  int64_t num_flips_ = 0;
  double worst_margin_ = 0.0;
  int64_t num_outside_ = 0;
};

/// The oracle's margin of `id`; infinite when it is none of the top ids.
double margin_of(std::span<const int32_t> ids, std::span<const bf16> oracle, int32_t id);

/// Another path of the oracle's own against its prompt path.
Difference own_noise(const GoldenCase& golden, const OtherPath& path);

/// How far a right engine may lie from the oracle, by the oracle's own noise: what its generation path and
/// (for FP8 weights) the rounding of the weights to bf16 do to its logits. The two add as independent errors do. A
/// dithered weight lies sqrt(3) times as far from the nearest bf16 value, in the mean square, as the exact one.
struct Envelope {
  DifferenceStats generation, dither;
  /// Limits of the pooled statistics.
  double mean = 0.0, p50 = 0.0, p90 = 0.0, p99 = 0.0, max = 0.0, largest = 0.0;
  /// A flip is explained when the oracle's margin is at most this.
  double margin = 0.0;
  /// Share of positions that may flip.
  double flip_share = 0.0;
  /// What the limits of states are multiplied by, too.
  double widening = 1.0;
};

/// For prompts whose activations are rounded to e4m3 in groups of 128 columns, of which the oracle knows nothing: as measured on one H200, with a fifth to spare. Logits differed
/// by 2.4 (embedded model) and 4.9 (27B shape, 8 layers) times what the exact mode may differ by, states by 4.3 times; 1.9 times as many positions flipped.
Envelope widened_for_fp8(const Envelope& exact);

/// How many times noisier the oracle's own paths are on this prompt than on the golden's prompts together; at least 1.
double relative_noise(const GoldenCase& golden, const Envelope& envelope);

/// `noise` of the two paths together, in any unit.
double joint_noise(double generation, double dither);

/// kDataLoss when the golden holds no generation path, or one so noisy that any logits would pass.
Result<Envelope> make_envelope(const Golden& golden);

}  // namespace sluice
