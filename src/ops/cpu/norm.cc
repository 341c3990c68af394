// Implements ops/norm.h. Test: tests/ops rms_norm, gated_rms_norm.
// Accumulation: fp32, four sums of sixteen lanes, then a fixed tree; it depends on the width alone.
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

void norm_row(const bf16* x, const float* weight, float eps, int64_t hidden, bf16* out) {
  const Vec inv = broadcast(inverse_rms(x, hidden, eps));
  const Vec one = broadcast(1.0f);
  for_each_vec(hidden, [&](int64_t i, int64_t n) {
    const Vec y = mul(mul(load_upto(x + i, n), inv), add(one, load_upto(weight + i, n)));
    store_upto(out + i, y, n);
  });
}

void gate_head(const bf16* o, const bf16* z, const float* weight, float eps, int64_t dim,
               bf16* out) {
  const Vec inv = broadcast(inverse_rms(o, dim, eps));
  for_each_vec(dim, [&](int64_t i, int64_t n) {
    const Vec normed = round_bf16(mul(load_upto(o + i, n), inv));
    const Vec y = round_bf16(mul(load_upto(weight + i, n), normed));
    store_upto(out + i, mul(y, silu(load_upto(z + i, n))), n);
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args, OpContext& context) {
  const int64_t hidden = args.x.num_cols;
  for_each_row(context, args.x.num_rows, hidden, [&](int64_t r) {
    norm_row(args.x.row(r), args.weight.data(), args.eps, hidden, args.out.row(r));
  });
}

void gated_rms_norm(const GatedRmsNormArgs& args, OpContext& context) {
  const auto dim = static_cast<int64_t>(args.weight.size());
  // Three vectors in, an exponential and a division an element.
  constexpr int64_t kCost = 2;
  for_each_row(context, args.o.num_rows, kCost * args.o.num_cols, [&](int64_t r) {
    for (int64_t c = 0; c < args.o.num_cols; c += dim) {
      gate_head(args.o.row(r) + c, args.z.row(r) + c, args.weight.data(), args.eps, dim,
                args.out.row(r) + c);
    }
  });
}

}  // namespace sluice::SLUICE_CPU_NS
