#pragma once
// One head's row of a GDN layer as both ref forms read it.

#include <vector>

#include "ops/gdn.h"
#include "ops/ref/ref_math.h"

namespace sluice::ref {

/// Spec 3.5 step 6: eps is added to the sum, inside the root.
inline constexpr double kL2NormEps = 1e-6;

struct GdnHeadRow {
  std::vector<double> q;  // l2-normalised, then / sqrt(head_k_dim)
  std::vector<double> k;  // l2-normalised
  std::vector<double> v;
  double g = 0.0;
  double beta = 0.0;
};

inline std::vector<double> l2_normalised(std::span<const bf16> x, double scale) {
  const double inv = 1.0 / std::sqrt(sum_of_squares(x) + kL2NormEps);
  std::vector<double> out;
  for (const bf16 v : x) out.push_back(widen(v) * inv * scale);
  return out;
}

/// Row `row` of value head `head`; its key head is head / (num_v_heads / num_k_heads).
inline GdnHeadRow read_gdn_row(const GdnArgs& args, int64_t row, int64_t head) {
  const GdnShape& shape = args.shape;
  const int64_t key_head = head / (shape.num_v_heads / shape.num_k_heads);
  const size_t k_dim = size_of(shape.head_k_dim);
  const bf16* qkv = args.qkv.row(row);
  const bf16* q = qkv + key_head * shape.head_k_dim;
  const bf16* v = qkv + 2 * shape.key_width() + head * shape.head_v_dim;

  GdnHeadRow out;
  out.q = l2_normalised({q, k_dim}, 1.0 / std::sqrt(static_cast<double>(shape.head_k_dim)));
  out.k = l2_normalised({q + shape.key_width(), k_dim}, 1.0);
  for (int64_t j = 0; j < shape.head_v_dim; ++j) out.v.push_back(widen(v[j]));
  out.g = static_cast<double>(args.g.row(row)[head]);
  out.beta = static_cast<double>(args.beta.row(row)[head]);
  return out;
}

}  // namespace sluice::ref
