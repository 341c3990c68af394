// Implements gdn_gates of ops/gdn.h. Spec 3.5 step 4.
#include "ops/ref/ref_math.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {

void gdn_gates(const GdnGatesArgs& args, OpContext&) {
  for (int64_t r = 0; r < args.a.num_rows; ++r) {
    for (int64_t h = 0; h < args.a.num_cols; ++h) {
      const double A = std::exp(static_cast<double>(args.A_log[size_of(h)]));
      const double dt = widen(args.a.row(r)[h]) + static_cast<double>(args.dt_bias[size_of(h)]);
      args.g.row(r)[h] = static_cast<float>(-A * softplus(dt));
      args.beta.row(r)[h] = static_cast<float>(rb(sigmoid(widen(args.b.row(r)[h]))));
    }
  }
}

}  // namespace sluice::ref
