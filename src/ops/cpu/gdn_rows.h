#pragma once
// A key head's q and k as both GDN forms use them.

#include "ops/cpu/vec_rows.h"
#include "ops/gdn.h"

namespace sluice::SLUICE_CPU_NS {

/// The widest head the kernels keep on their stack.
inline constexpr int64_t kGdnMaxKeyDim = 256;

/// out = x * rsqrt(sum(x*x) + 1e-6) * scale; eps is added to the sum.
inline void l2_normalise(const bf16* x, int64_t dim, float scale, float* out) {
  constexpr float kEps = 1e-6f;
  const Vec inv = broadcast(1.0f / std::sqrt(sum_of_squares(x, dim) + kEps));
  const Vec factor = broadcast(scale);
  for (int64_t i = 0; i < dim; i += kLanes) store(out + i, mul(mul(load(x + i), inv), factor));
}

/// Where value head `head` finds its inputs in a row of qkv.
struct GdnHead {
  GdnHead(const GdnShape& shape, int64_t head)
      : dim_k(shape.head_k_dim),
        dim_v(shape.head_v_dim),
        q(head / (shape.num_v_heads / shape.num_k_heads) * dim_k),
        k(q + shape.key_width()),
        v(2 * shape.key_width() + head * dim_v),
        o(head * dim_v),
        state(head * dim_k * dim_v) {}

  void read_q(const bf16* qkv, float* out) const {
    l2_normalise(qkv + q, dim_k, 1.0f / std::sqrt(static_cast<float>(dim_k)), out);
  }
  void read_k(const bf16* qkv, float* out) const { l2_normalise(qkv + k, dim_k, 1.0f, out); }

  int64_t dim_k, dim_v;
  int64_t q, k, v, o, state;  // offsets
};

}  // namespace sluice::SLUICE_CPU_NS
