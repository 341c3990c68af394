#pragma once
// The arbiter's ops as functions from matrices to matrices.

#include <vector>

#include "ops/op_table.h"
#include "tests/ops/golden_set.h"

namespace sluice::golden {

Matrix<bf16> run_rms_norm(const Matrix<bf16>& x, const Matrix<float>& weight, float eps = 1e-6f);
Matrix<bf16> run_gated_rms_norm(const Matrix<bf16>& o, const Matrix<bf16>& z,
                                const Matrix<float>& weight, float eps = 1e-6f);

WeightView weight_view(const Matrix<bf16>& weight);
Matrix<bf16> run_linear(const Matrix<bf16>& x, const WeightView& weight);
Matrix<bf16> run_linear_residual(const Matrix<bf16>& x, const WeightView& weight,
                                 const Matrix<bf16>& residual);
Matrix<bf16> run_gate_up(const Matrix<bf16>& x, const WeightView& gate, const WeightView& up);

/// One session from position 0, its rows cut into calls of `calls` rows.
Matrix<bf16> run_conv1d(const Matrix<bf16>& x, const Matrix<float>& weight,
                        const std::vector<int32_t>& calls);

struct Gates {
  Matrix<float> g;
  Matrix<float> beta;
};
Gates run_gdn_gates(const Matrix<bf16>& a, const Matrix<bf16>& b, const Matrix<float>& A_log,
                    const Matrix<float>& dt_bias);

struct GdnInput {
  GdnShape shape;
  Matrix<bf16> qkv;
  Matrix<float> g;
  Matrix<float> beta;
};
/// `state` [num_v_heads * head_k_dim, head_v_dim] is advanced; `position` is that of row 0.
Matrix<bf16> run_gdn_chunk(const GdnInput& in, int32_t position, Matrix<float>& state);
Matrix<bf16> run_gdn_step(const GdnInput& in, int32_t position, Matrix<float>& state);
/// Rows [first, first + count).
GdnInput gdn_rows(const GdnInput& in, int64_t first, int64_t count);

/// cos and sin [positions, rotary_dim / 2] as the oracle's fp32 chain gives them; see golden_run.cc.
struct RopeTable {
  Matrix<float> cos;
  Matrix<float> sin;
};
struct RopeForm {
  double theta = 1e7;
  int64_t rotary_dim = 64;
  bool round = true;          // to bf16
  bool double_angle = false;  // a wrong variant: the angle is not rounded to fp32
};
std::vector<float> rope_inv_freq(const RopeForm& form);
RopeTable rope_rows(const std::vector<int32_t>& positions, const RopeForm& form = {});

/// KV pages of one session whose pages lie in the pool in a shuffled order.
struct KvPages {
  KvPages(int64_t kv_heads, int64_t head_dim, int64_t num_positions);
  void put(int64_t position, const bf16* k, const bf16* v);  // [num_kv_heads, head_dim] each
  Matrix<bf16> keys(int64_t position) const;                 // [1, num_kv_heads * head_dim]

  std::vector<bf16> data;
  std::vector<int32_t> page_table;
  KvLayerView view;
};

struct PrepareInput {
  AttentionShape shape;
  Matrix<bf16> qg, k, v;
  Matrix<float> q_norm, k_norm;
  std::vector<int32_t> positions;  // of each row
};
/// Rotated q; `keys` becomes the rotated k that went into the pages.
Matrix<bf16> run_attn_prepare(const PrepareInput& in, const RopeForm& form, Matrix<bf16>& keys);
/// The newest q.num_rows of `context` positions in `kv`.
Matrix<bf16> run_attention(const AttentionShape& shape, const Matrix<bf16>& q,
                           const Matrix<bf16>& qg, KvPages& kv, int64_t context);

}  // namespace sluice::golden
