// Implements gdn_gates of ops/gdn.h. Test: tests/ops gdn_gates.
// Double and libm: a row has a few dozen values, and an error of g acts on the state again and again.
#include <cmath>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

/// torch's softplus: threshold 20.
double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

float gate(float A_log, float a, float dt_bias) {
  const double dt = static_cast<double>(a) + static_cast<double>(dt_bias);
  return static_cast<float>(-std::exp(static_cast<double>(A_log)) * softplus(dt));
}

float rounded_sigmoid(float x) {
  return rb(static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x)))));
}

}  // namespace

void gdn_gates(const GdnGatesArgs& args, OpContext& context) {
  const int64_t num_heads = args.a.num_cols;
  constexpr int64_t kCost = 128;  // of an elementwise op's element
  for_each_row(context, args.a.num_rows, kCost * num_heads, [&](int64_t r) {
    for (int64_t h = 0; h < num_heads; ++h) {
      const auto n = static_cast<size_t>(h);
      args.g.row(r)[h] = gate(args.A_log[n], to_float(args.a.row(r)[h]), args.dt_bias[n]);
      args.beta.row(r)[h] = rounded_sigmoid(to_float(args.b.row(r)[h]));
    }
  });
}

}  // namespace sluice::SLUICE_CPU_NS
