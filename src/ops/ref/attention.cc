// Implements ops/attention.h. Spec 3.4, whose step numbers the comments name.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/ref/ref_math.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

using Vector = std::vector<double>;

/// Step 2: zero-centred RMSNorm over head_dim, rounded.
Vector normed_head(const bf16* x, std::span<const float> weight, double eps) {
  const std::span<const bf16> head(x, weight.size());
  const double mean = sum_of_squares(head) / static_cast<double>(head.size());
  const double inv = 1.0 / std::sqrt(mean + eps);
  Vector out;
  for (size_t i = 0; i < head.size(); ++i) {
    out.push_back(rb(widen(head[i]) * inv * (1.0 + static_cast<double>(weight[i]))));
  }
  return out;
}

/// Step 3: rotate-half over the first 2 * half dims: x' = rb( rb(x cos) + rb(rot(x) sin) ).
void rotate(Vector& x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const double lo = x[i];
    const double hi = x[i + half];
    const auto c = static_cast<double>(cos[i]);
    const auto s = static_cast<double>(sin[i]);
    x[i] = rb(rb(lo * c) + rb(-hi * s));
    x[i + half] = rb(rb(hi * c) + rb(lo * s));
  }
}

void prepare_head(const AttnPrepareArgs& args, const bf16* x, std::span<const float> weight,
                  int64_t position, bf16* out) {
  Vector head = normed_head(x, weight, static_cast<double>(args.eps));
  rotate(head, args.cos.row(position), args.sin.row(position), size_of(args.shape.rotary_dim / 2));
  std::transform(head.begin(), head.end(), out, round_bf16);
}

void prepare_row(const AttnPrepareArgs& args, const RowRun& run, int64_t row, int64_t position) {
  const int64_t dim = args.shape.head_dim;
  for (int64_t h = 0; h < args.shape.num_heads; ++h) {
    // Step 1: per head, head_dim query values, then head_dim gate values.
    prepare_head(args, args.qg.row(row) + h * 2 * dim, args.q_norm, position,
                 args.q.row(row) + h * dim);
  }
  const int32_t page = run.page_table[position / kKvPageTokens];
  const int64_t token = position % kKvPageTokens;
  for (int64_t h = 0; h < args.shape.num_kv_heads; ++h) {
    // Step 4: the cache holds rotated k and raw v.
    prepare_head(args, args.k.row(row) + h * dim, args.k_norm, position,
                 args.kv.k_row(page, h, token));
    std::copy_n(args.v.row(row) + h * dim, dim, args.kv.v_row(page, h, token));
  }
}

/// Step 5: p_j for positions 0..position of one query head.
Vector probabilities(const AttentionArgs& args, const RowRun& run, const bf16* q, int64_t kv_head,
                     int64_t position) {
  const int64_t dim = args.shape.head_dim;
  const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
  Vector p;
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j <= position; ++j) {
    const bf16* k = args.kv.k_row(run.page_table[j / kKvPageTokens], kv_head, j % kKvPageTokens);
    double sum = 0.0;
    for (int64_t i = 0; i < dim; ++i) sum += widen(q[i]) * widen(k[i]);
    p.push_back(rb(rb(sum) * scale));
    max = std::max(max, p.back());
  }
  double total = 0.0;
  for (double& x : p) {
    x = std::exp(x - max);
    total += x;
  }
  for (double& x : p) x = rb(x / total);
  return p;
}

void attend_head(const AttentionArgs& args, const RowRun& run, int64_t row, int64_t position,
                 int64_t head) {
  const int64_t dim = args.shape.head_dim;
  const int64_t kv_head = head / (args.shape.num_heads / args.shape.num_kv_heads);
  const Vector p = probabilities(args, run, args.q.row(row) + head * dim, kv_head, position);
  const bf16* gate = args.qg.row(row) + head * 2 * dim + dim;
  bf16* out = args.out.row(row) + head * dim;
  for (int64_t i = 0; i < dim; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j <= position; ++j) {
      const int32_t page = run.page_table[j / kKvPageTokens];
      sum += p[size_of(j)] * widen(args.kv.v_row(page, kv_head, j % kKvPageTokens)[i]);
    }
    // Step 6: the sigmoid rounds, then the product rounds.
    out[i] = round_bf16(rb(sum) * rb(sigmoid(widen(gate[i]))));
  }
}

}  // namespace

void attn_prepare(const AttnPrepareArgs& args, OpContext&) {
  for (const RowRun& run : args.runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      prepare_row(args, run, run.first_row + i, run.position + i);
    }
  }
}

void attention(const AttentionArgs& args, OpContext&) {
  for (const RowRun& run : args.runs) {
    for (int64_t i = 0; i < run.num_rows; ++i) {
      for (int64_t h = 0; h < args.shape.num_heads; ++h) {
        attend_head(args, run, run.first_row + i, run.position + i, h);
      }
    }
  }
}

}  // namespace sluice::ref
