#pragma once

#include <span>

#include "base/bf16.h"
#include "base/view.h"
#include "ops/op_context.h"
#include "ops/row_run.h"

namespace sluice {

/// beta = rb( sigmoid(b) );  g = -exp(A_log) * softplus(a + dt_bias), fp32 (softplus returns its
/// argument above 20).
///
/// a, b    [num_rows, num_v_heads] bf16
/// A_log, dt_bias [num_v_heads] fp32
/// g, beta [num_rows, num_v_heads] fp32; g <= 0
struct GdnGatesArgs {
  MatView<const bf16> a;
  MatView<const bf16> b;
  std::span<const float> A_log;
  std::span<const float> dt_bias;
  MatView<float> g;
  MatView<float> beta;
};

struct GdnShape {
  int64_t num_k_heads = 0;
  int64_t num_v_heads = 0;
  int64_t head_k_dim = 128;
  int64_t head_v_dim = 128;

  int64_t key_width() const { return num_k_heads * head_k_dim; }
  int64_t value_width() const { return num_v_heads * head_v_dim; }
  /// Channels of in_proj_qkv and of the conv: q, then k, then v.
  int64_t qkv_width() const { return 2 * key_width() + value_width(); }
  int64_t state_size() const { return num_v_heads * head_k_dim * head_v_dim; }
};

/// gdn_step: any rows; a row's bits do not depend on how a prompt was cut. gdn_chunk: runs must begin
/// at multiples of kGdnChunk.
enum class GdnForm { kStep, kChunk };

/// Gated delta rule, both forms: per value head h with key head h / (num_v_heads / num_k_heads),
/// after q, k <- x * rsqrt(sum(x*x) + 1e-6) in fp32 and q <- q / sqrt(head_k_dim):
///
///   S <- exp(g_t) S;  d = beta_t (v_t - S^T k_t);  S <- S + k_t d^T;  o_t = S^T q_t
///
/// qkv     [num_rows, qkv_width] bf16, after conv and SiLU, not normalised
/// g, beta [num_rows, num_v_heads] fp32
/// state   fp32, read and advanced in place per run
/// o       [num_rows, value_width] bf16, rounded once
/// Runs are of different slots. Eps 1e-6 is added to the sum, not the mean.
///
/// gdn_step: recurrent form, row after row.
///   Promise: n rows in one call == n calls of one row, bit for bit.
/// gdn_chunk: WY form in chunks of kGdnChunk anchored at position 0.
///   Pre: every run's position % kGdnChunk == 0.
///   Promise: a row's bits depend on the rows before it only, so a sequence may be cut at any
///   multiple of kGdnChunk, and a run that ends inside a chunk gives its rows the same bits as a
///   longer one. Fills run.checkpoint_slot.
/// Follows: torch_recurrent_gated_delta_rule and torch_chunk_gated_delta_rule, transformers 5.17
/// (l2norm in fp32).
struct GdnArgs {
  GdnShape shape;
  MatView<const bf16> qkv;
  MatView<const float> g;
  MatView<const float> beta;
  std::span<const RowRun> runs;
  RecurrentLayerView state;
  MatView<bf16> o;
};

}  // namespace sluice
