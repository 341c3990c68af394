#pragma once
// Whole blocks of a layer, for backends that have a fused form of one. What a block computes is what its parts compute,
// in the order given here; forward makes it of the parts where a backend has no block or declines one.
//
// x    [num_rows, hidden] bf16, the residual stream, in place
// *_norm, norm: RMS norm weights as in ops/norm.h
// Views behind "between the parts" are buffers a fused form need not write; their values are of no interest afterwards.

#include <span>

#include "base/weight_view.h"
#include "ops/attention.h"
#include "ops/gdn.h"
#include "ops/linear.h"

namespace sluice {

/// rms_norm -> linear(qkv, z, b, a) -> conv1d -> gdn_gates -> gdn_step or gdn_chunk -> gated_rms_norm -> linear_residual.
/// The state advances as conv1d and gdn_* say.
struct GdnMixerArgs {
  MatView<bf16> x;
  std::span<const float> input_norm;
  float eps = 1e-6f;
  GdnShape shape;
  GdnForm form = GdnForm::kStep;
  WeightView in_proj_qkv, in_proj_z, in_proj_b, in_proj_a;
  std::span<const float> conv1d, A_log, dt_bias, norm;
  WeightView out_proj;
  std::span<const RowRun> runs;
  RecurrentLayerView recurrent;
  ConvLayerView conv_state;
  // Between the parts.
  MatView<bf16> h, qkv, z, b, a, conv;
  MatView<float> g, beta;
  MatView<bf16> core;
};

/// rms_norm -> linear(q|gate, k, v) -> attn_prepare -> attention -> linear_residual.
struct AttentionMixerArgs {
  MatView<bf16> x;
  std::span<const float> input_norm;
  float eps = 1e-6f;
  AttentionShape shape;
  WeightView q_proj, k_proj, v_proj;
  std::span<const float> q_norm, k_norm;
  MatView<const float> cos, sin;
  WeightView o_proj;
  std::span<const RowRun> runs;
  KvLayerView kv;
  // Between the parts.
  MatView<bf16> h, qg, k, v, q, core;
};

/// rms_norm -> gate_up -> linear_residual.
struct MlpArgs {
  MatView<bf16> x;
  std::span<const float> norm;
  float eps = 1e-6f;
  WeightView gate_proj, up_proj, down_proj;
  // Between the parts.
  MatView<bf16> h, mlp;
};

/// rms_norm -> gather -> linear: the end of a step.
///
/// hidden     [num_rows, hidden] bf16, out, every row
/// logit_rows the step's own list; with padding logits has more rows than the list
/// logits     [num_logit_rows, vocab_size] bf16, out
struct HeadArgs {
  MatView<const bf16> x;
  std::span<const float> norm;
  float eps = 1e-6f;
  WeightView lm_head;
  std::span<const int32_t> logit_rows;
  MatView<bf16> hidden;
  MatView<bf16> logits;
  // Between the parts.
  MatView<bf16> logit_input;
};

}  // namespace sluice
