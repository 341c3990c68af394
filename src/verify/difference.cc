#include "verify/difference.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

/// A path that is as noisy as the oracle's own stays below these multiples of its figures: means and quantiles of
/// thousands of positions repeat within a few per cent, extremes do not.
constexpr double kMeanFactor = 1.5;
constexpr double kTailFactor = 2.0;
constexpr double kExtremeFactor = 3.0;
/// Flips are rare: this share is allowed whatever the oracle's own.
constexpr double kFlipShareMin = 0.01;
constexpr double kFlipShareMax = 0.9;
/// Fewer positions calibrate nothing.
constexpr int64_t kPositionsMin = 32;

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0.0;
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(std::lround(q * last))];
}

double flip_share(const DifferenceStats& stats) {
  if (stats.num_positions == 0) return 0.0;
  return static_cast<double>(stats.num_flips) / static_cast<double>(stats.num_positions);
}

/// Between the largest and the smallest recorded logit, over all positions.
double mean_spread(const Golden& golden) {
  double sum = 0.0;
  int64_t count = 0;
  for (const GoldenCase& c : golden.cases) {
    for (int64_t i = 0; i < c.prompt.num_positions(); ++i, ++count) {
      const std::span<const bf16> logits = c.prompt.logits_at(i);
      sum += static_cast<double>(to_float(logits.front())) - to_float(logits.back());
    }
  }
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

}  // namespace

double margin_of(std::span<const int32_t> ids, std::span<const bf16> oracle, int32_t id) {
  const auto at = std::find(ids.begin(), ids.end(), id);
  if (at == ids.end()) return INFINITY;
  const auto idx = static_cast<size_t>(at - ids.begin());
  return static_cast<double>(to_float(oracle[0])) - static_cast<double>(to_float(oracle[idx]));
}

void Difference::add(std::span<const int32_t> ids, std::span<const bf16> oracle,
                     std::span<const bf16> ours, int32_t best) {
  double squares = 0.0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const double d = static_cast<double>(to_float(ours[i])) - to_float(oracle[i]);
    squares += d * d;
    // A NaN must not pass as small.
    largest_ = std::isnan(d) ? INFINITY : std::max(largest_, std::abs(d));
  }
  const double rms = std::sqrt(squares / static_cast<double>(ids.size()));
  per_position_.push_back(std::isnan(rms) ? INFINITY : rms);
  if (best == ids[0]) return;
  const double margin = margin_of(ids, oracle, best);
  // Ids with the oracle's best logit are equally right.
  if (margin == 0.0) return;
  if (std::isinf(margin)) {
    ++num_outside_;
    return;
  }
  ++num_flips_;
  worst_margin_ = std::max(worst_margin_, margin);
}

void Difference::merge(const Difference& other) {
  per_position_.insert(per_position_.end(), other.per_position_.begin(), other.per_position_.end());
  largest_ = std::max(largest_, other.largest_);
  num_flips_ += other.num_flips_;
  worst_margin_ = std::max(worst_margin_, other.worst_margin_);
  num_outside_ += other.num_outside_;
}

DifferenceStats Difference::stats() const {
  DifferenceStats stats;
  stats.num_positions = static_cast<int64_t>(per_position_.size());
  stats.largest = largest_;
  stats.num_flips = num_flips_;
  stats.worst_margin = worst_margin_;
  stats.num_outside = num_outside_;
  if (per_position_.empty()) return stats;
  std::vector<double> sorted = per_position_;
  std::sort(sorted.begin(), sorted.end());
  for (const double x : sorted) stats.mean += x / static_cast<double>(sorted.size());
  stats.p50 = quantile(sorted, 0.5);
  stats.p90 = quantile(sorted, 0.9);
  stats.p99 = quantile(sorted, 0.99);
  stats.max = sorted.back();
  return stats;
}

Difference own_noise(const GoldenCase& golden, const OtherPath& path) {
  Difference noise;
  const int64_t top = golden.prompt.top;
  for (int64_t i = 0; i < path.num_positions(); ++i) {
    const auto first = static_cast<size_t>(i * top);
    noise.add(golden.prompt.ids_at(path.first + i), golden.prompt.logits_at(path.first + i),
              std::span(path.top_logits).subspan(first, static_cast<size_t>(top)),
              path.best[static_cast<size_t>(i)]);
  }
  return noise;
}

double relative_noise(const GoldenCase& golden, const Envelope& envelope) {
  double noise = 1.0;
  if (golden.generation && envelope.generation.mean > 0.0) {
    noise = std::max(noise,
                     own_noise(golden, *golden.generation).stats().mean / envelope.generation.mean);
  }
  if (golden.dither && envelope.dither.mean > 0.0) {
    noise = std::max(noise, own_noise(golden, *golden.dither).stats().mean / envelope.dither.mean);
  }
  return noise;
}

Envelope widened_for_fp8(const Envelope& exact) {
  constexpr double kWidening = 6.0;
  constexpr double kFlipWidening = 2.5;
  Envelope wide = exact;
  for (double* limit :
       {&wide.mean, &wide.p50, &wide.p90, &wide.p99, &wide.max, &wide.largest, &wide.margin}) {
    *limit *= kWidening;
  }
  wide.flip_share = std::min(1.0, kFlipWidening * exact.flip_share);
  wide.widening = kWidening;
  return wide;
}

double joint_noise(double generation, double dither) {
  return std::hypot(generation, dither / std::sqrt(3.0));
}

Result<Envelope> make_envelope(const Golden& golden) {
  Difference generation;
  Difference dither;
  for (const GoldenCase& c : golden.cases) {
    if (c.generation) generation.merge(own_noise(c, *c.generation));
    if (c.dither) dither.merge(own_noise(c, *c.dither));
  }
  Envelope e;
  e.generation = generation.stats();
  e.dither = dither.stats();
  if (e.generation.num_positions < kPositionsMin) {
    return data_loss(
        "the golden holds the oracle's generation path at {} positions; expected at least {}, or "
        "its "
        "noise is unknown",
        e.generation.num_positions, kPositionsMin);
  }
  const auto limit = [&](double factor, double DifferenceStats::*figure) {
    return factor * joint_noise(e.generation.*figure, e.dither.*figure);
  };
  e.mean = limit(kMeanFactor, &DifferenceStats::mean);
  e.p50 = limit(kMeanFactor, &DifferenceStats::p50);
  e.p90 = limit(kMeanFactor, &DifferenceStats::p90);
  e.p99 = limit(kTailFactor, &DifferenceStats::p99);
  e.max = limit(kExtremeFactor, &DifferenceStats::max);
  e.largest = limit(kExtremeFactor, &DifferenceStats::largest);
  // Two logits change places when they move towards each other by the margin in all.
  e.margin = 2.0 * limit(1.0, &DifferenceStats::largest);
  e.flip_share = std::clamp(kTailFactor * (flip_share(e.generation) + flip_share(e.dither)),
                            kFlipShareMin, kFlipShareMax);
  const double spread = mean_spread(golden);
  if (e.mean < spread) return e;
  return data_loss(
      "the oracle's own noise allows a mean difference of {:.3g}, and its top logits are {:.3g} "
      "apart: "
      "anything would pass",
      e.mean, spread);
}

}  // namespace sluice
