// Implements ops/linear.h. Spec 3 ("bf16 linear"), 3.3 (MLP), 5 (FP8 semantics).
#include <vector>

#include "ops/ref/ref_math.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

/// Row n of W as exact values; the FP8 block scale is applied to block sums, not here.
void widen_weight_row(const WeightView& w, int64_t n, std::span<double> out) {
  const int64_t first = n * w.num_in;
  for (size_t k = 0; k < out.size(); ++k) {
    const int64_t i = first + static_cast<int64_t>(k);
    out[k] = w.format == WeightFormat::kBf16
                 ? widen(static_cast<const bf16*>(w.data)[i])
                 : static_cast<double>(e4m3_to_float(static_cast<const uint8_t*>(w.data)[i]));
  }
}

double block_scale(const WeightView& w, int64_t n, int64_t block) {
  if (w.format == WeightFormat::kBf16) return 1.0;
  return static_cast<double>(w.scales[n / kFp8BlockSize * w.scale_cols() + block]);
}

/// x . W[n] : each 128-block of K sums on its own, then its scale multiplies that sum.
double dot(const bf16* x, const WeightView& w, int64_t n, std::span<const double> weight_row) {
  double sum = 0.0;
  for (int64_t block = 0; block < w.scale_cols(); ++block) {
    const int64_t end = std::min(w.num_in, (block + 1) * kFp8BlockSize);
    double partial = 0.0;
    for (int64_t k = block * kFp8BlockSize; k < end; ++k) {
      partial += widen(x[k]) * weight_row[size_of(k)];
    }
    sum += partial * block_scale(w, n, block);
  }
  return sum;
}

/// Calls store(row, n, x_row . W[n]) for every row and output.
template <typename Store>
void for_each_dot(MatView<const bf16> x, const WeightView& w, Store store) {
  SLUICE_CHECK_EQ(x.num_cols, w.num_in);
  std::vector<double> weight_row(size_of(w.num_in));
  for (int64_t n = 0; n < w.num_out; ++n) {
    widen_weight_row(w, n, weight_row);
    for (int64_t r = 0; r < x.num_rows; ++r) store(r, n, dot(x.row(r), w, n, weight_row));
  }
}

}  // namespace

void linear(const LinearArgs& args, OpContext&) {
  for (const Projection& projection : args.projections) {
    const MatView<bf16> out = projection.out;
    for_each_dot(args.x, projection.weight,
                 [&](int64_t r, int64_t n, double value) { out.row(r)[n] = round_bf16(value); });
  }
}

void linear_residual(const LinearResidualArgs& args, OpContext&) {
  for_each_dot(args.x, args.weight, [&](int64_t r, int64_t n, double value) {
    bf16& residual = args.residual.row(r)[n];
    residual = round_bf16(widen(residual) + rb(value));
  });
}

void gate_up(const GateUpArgs& args, OpContext&) {
  for_each_dot(args.x, args.gate, [&](int64_t r, int64_t n, double value) {
    args.out.row(r)[n] = round_bf16(silu(rb(value)));
  });
  for_each_dot(args.x, args.up, [&](int64_t r, int64_t n, double value) {
    bf16& out = args.out.row(r)[n];
    out = round_bf16(widen(out) * rb(value));
  });
}

}  // namespace sluice::ref
