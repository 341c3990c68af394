#pragma once
// What several ref ops share: the rounding and the activations, in double.

#include <cmath>
#include <cstdint>
#include <span>

#include "base/bf16.h"

namespace sluice::ref {

inline double widen(bf16 x) {
  return static_cast<double>(to_float(x));
}
inline bf16 round_bf16(double x) {
  return to_bf16(static_cast<float>(x));
}
/// The spec's rb(), on a double.
inline double rb(double x) {
  return widen(round_bf16(x));
}

inline double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}
inline double silu(double x) {
  return x * sigmoid(x);
}
/// torch's softplus: beta 1, threshold 20.
inline double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

inline double sum_of_squares(std::span<const bf16> x) {
  double sum = 0.0;
  for (const bf16 v : x) sum += widen(v) * widen(v);
  return sum;
}

inline size_t size_of(int64_t n) {
  return static_cast<size_t>(n);
}

}  // namespace sluice::ref
