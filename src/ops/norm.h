#pragma once

#include <span>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op_context.h"

namespace sluice {

/// Zero-centred RMSNorm: y = rb( (x * rsqrt(mean(x*x) + eps)) * (1 + w) ), fp32 inside, one
/// rounding.
///
/// x, out [num_rows, hidden] bf16 (may be the same memory)
/// weight [hidden] fp32 holding the stored w; 1 + w is formed in fp32
/// A row depends on itself only. Follows: Qwen3_5RMSNorm, transformers.
struct RmsNormArgs {
  MatView<const bf16> x;
  std::span<const float> weight;
  float eps = 1e-6f;
  MatView<bf16> out;
};

/// Gated RMSNorm over each head's head_dim values, norm before gate:
///   n = rb( o * rsqrt(mean(o*o) + eps) );  y = rb( w * n );  out = rb( y * silu(z) ), silu in fp32
///   on the widened z.
///
/// o, z, out [num_rows, num_heads * head_dim] bf16 (out may be o)
/// weight    [head_dim] fp32 holding bf16 values, plain (not 1 + w), shared by all heads
/// Follows: Qwen3_5RMSNormGated, transformers.
struct GatedRmsNormArgs {
  MatView<const bf16> o;
  MatView<const bf16> z;
  std::span<const float> weight;
  float eps = 1e-6f;
  MatView<bf16> out;
};

}  // namespace sluice
