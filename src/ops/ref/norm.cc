// Implements ops/norm.h. Spec 3.2 (RMSNorm, zero-centred) and 3.5 step 9 (gated, norm before gate).
#include "ops/ref/ref_math.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

double inverse_rms(std::span<const bf16> x, double eps) {
  return 1.0 / std::sqrt(sum_of_squares(x) / static_cast<double>(x.size()) + eps);
}

void gated_head(std::span<const bf16> o, const bf16* z, std::span<const float> weight, double eps,
                bf16* out) {
  const double inv = inverse_rms(o, eps);
  for (size_t i = 0; i < o.size(); ++i) {
    const double n = rb(widen(o[i]) * inv);
    const double y = rb(static_cast<double>(weight[i]) * n);
    out[i] = round_bf16(y * silu(widen(z[i])));
  }
}

}  // namespace

void rms_norm(const RmsNormArgs& args, OpContext&) {
  const auto hidden = static_cast<size_t>(args.x.num_cols);
  for (int64_t r = 0; r < args.x.num_rows; ++r) {
    const std::span<const bf16> x(args.x.row(r), hidden);
    const double inv = inverse_rms(x, static_cast<double>(args.eps));
    for (size_t i = 0; i < hidden; ++i) {
      const double y = widen(x[i]) * inv * (1.0 + static_cast<double>(args.weight[i]));
      args.out.row(r)[i] = round_bf16(y);
    }
  }
}

void gated_rms_norm(const GatedRmsNormArgs& args, OpContext&) {
  const auto head_dim = static_cast<int64_t>(args.weight.size());
  for (int64_t r = 0; r < args.o.num_rows; ++r) {
    for (int64_t c = 0; c < args.o.num_cols; c += head_dim) {
      gated_head({args.o.row(r) + c, args.weight.size()}, args.z.row(r) + c, args.weight,
                 static_cast<double>(args.eps), args.out.row(r) + c);
    }
  }
}

}  // namespace sluice::ref
