#pragma once

#include <span>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op_context.h"
#include "ops/row_run.h"

namespace sluice {

struct AttentionShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 256;
  int64_t rotary_dim = 64;
};

/// Between the projections and the scores: q and k heads are RMS-normed (zero-centred, over
/// head_dim), the first rotary_dim dims are rotated in halves (dim i pairs with i + rotary_dim/2):
/// x' = rb( rb(x cos) + rb(rot(x) sin) ); rotated k and raw v are written to the rows' places in
/// the KV pages.
///
/// qg       [num_rows, num_heads * 2 * head_dim] bf16: per head head_dim query values, then head_dim
///          gate values
/// k, v     [num_rows, num_kv_heads * head_dim] bf16, from the projections
/// q_norm, k_norm [head_dim] fp32, the stored w of (1 + w)
/// cos, sin [>= positions, rotary_dim / 2] fp32 holding bf16-rounded values, by absolute position
/// q        [num_rows, num_heads * head_dim] bf16, out
struct AttnPrepareArgs {
  AttentionShape shape;
  MatView<const bf16> qg;
  MatView<const bf16> k;
  MatView<const bf16> v;
  std::span<const float> q_norm;
  std::span<const float> k_norm;
  float eps = 1e-6f;
  MatView<const float> cos;
  MatView<const float> sin;
  std::span<const RowRun> runs;
  KvLayerView kv;
  MatView<bf16> q;
};

/// Causal attention of every row over all positions <= its own, then the output gate:
///
///   s_j = rb( rb(q . k_j) * head_dim^-0.5 );  p_j = rb( exp(s_j - M) / L )
///   o = rb( sum_j p_j v_j );  out = rb( o * rb(sigmoid(gate)) )
///
/// with M and L over the whole context (two passes: the eager rounding of the oracle).
///
/// qg, q as in AttnPrepareArgs
/// out   [num_rows, num_heads * head_dim] bf16
///
/// Query head h reads kv head h / (num_heads / num_kv_heads).
/// Order: sums over the context are formed per absolute span of kKvPageTokens positions, spans then
/// added in order, so a row's bits depend on its own context only: not on num_rows, siblings,
/// threads or how the prompt was cut.
struct AttentionArgs {
  AttentionShape shape;
  MatView<const bf16> q;
  MatView<const bf16> qg;
  std::span<const RowRun> runs;
  KvLayerView kv;
  MatView<bf16> out;
};

}  // namespace sluice
