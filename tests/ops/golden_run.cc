#include "tests/ops/golden_run.h"

#include <algorithm>
#include <cmath>

namespace sluice::golden {
namespace {

constexpr size_t kScratchBytes = size_t{64} << 20;

OpContext& context() {
  static ThreadPool pool(1);
  static Arena arena = Arena::create(kScratchBytes, "golden test scratch").value();
  static OpContext ctx{&pool, &arena};
  return ctx;
}

const OpTable& ops() {
  return ref_ops();
}

std::span<const float> span_of(const Matrix<float>& m) {
  return {m.values};
}

template <typename T>
Matrix<T> rows_of(const Matrix<T>& m, int64_t first, int64_t count) {
  Matrix<T> out(count, m.num_cols);
  std::copy_n(m.row(first), count * m.num_cols, out.values.begin());
  return out;
}

RowRun whole_run(int64_t num_rows, int32_t position) {
  RowRun run;
  run.num_rows = static_cast<int32_t>(num_rows);
  run.position = position;
  run.slot = 0;
  return run;
}

using GdnOp = void (*)(const GdnArgs&, OpContext&);

Matrix<bf16> run_gdn(GdnOp op, const GdnInput& in, int32_t position, Matrix<float>& state) {
  Matrix<bf16> o(in.qkv.num_rows, in.shape.value_width());
  const RowRun run = whole_run(in.qkv.num_rows, position);
  op({in.shape,
      in.qkv.view(),
      in.g.view(),
      in.beta.view(),
      {&run, 1},
      {state.values.data(), in.shape.state_size()},
      o.view()},
     context());
  return o;
}

}  // namespace

Matrix<bf16> run_rms_norm(const Matrix<bf16>& x, const Matrix<float>& weight, float eps) {
  Matrix<bf16> out(x.num_rows, x.num_cols);
  ops().rms_norm({x.view(), span_of(weight), eps, out.view()}, context());
  return out;
}

Matrix<bf16> run_gated_rms_norm(const Matrix<bf16>& o, const Matrix<bf16>& z,
                                const Matrix<float>& weight, float eps) {
  Matrix<bf16> out(o.num_rows, o.num_cols);
  ops().gated_rms_norm({o.view(), z.view(), span_of(weight), eps, out.view()}, context());
  return out;
}

WeightView weight_view(const Matrix<bf16>& weight) {
  return {WeightFormat::kBf16, weight.values.data(), nullptr, weight.num_rows, weight.num_cols};
}

Matrix<bf16> run_linear(const Matrix<bf16>& x, const WeightView& weight) {
  Matrix<bf16> out(x.num_rows, weight.num_out);
  const Projection projection{weight, out.view()};
  ops().linear({x.view(), {&projection, 1}}, context());
  return out;
}

Matrix<bf16> run_linear_residual(const Matrix<bf16>& x, const WeightView& weight,
                                 const Matrix<bf16>& residual) {
  Matrix<bf16> out = residual;
  ops().linear_residual({x.view(), weight, out.view()}, context());
  return out;
}

Matrix<bf16> run_gate_up(const Matrix<bf16>& x, const WeightView& gate, const WeightView& up) {
  Matrix<bf16> out(x.num_rows, gate.num_out);
  ops().gate_up({x.view(), gate, up, out.view()}, context());
  return out;
}

Matrix<bf16> run_conv1d(const Matrix<bf16>& x, const Matrix<float>& weight,
                        const std::vector<int32_t>& calls) {
  Matrix<bf16> out(x.num_rows, x.num_cols);
  std::vector<bf16> ring(static_cast<size_t>(kConvRingColumns * x.num_cols));
  int32_t done = 0;
  for (const int32_t rows : calls) {
    const RowRun run = whole_run(rows, done);
    ops().conv1d({x.view().rows(done, rows),
                  span_of(weight),
                  {&run, 1},
                  {ring.data(), static_cast<int64_t>(ring.size()), x.num_cols},
                  out.view().rows(done, rows)},
                 context());
    done += rows;
  }
  SLUICE_CHECK_EQ(done, x.num_rows);
  return out;
}

Gates run_gdn_gates(const Matrix<bf16>& a, const Matrix<bf16>& b, const Matrix<float>& A_log,
                    const Matrix<float>& dt_bias) {
  Gates out{Matrix<float>(a.num_rows, a.num_cols), Matrix<float>(a.num_rows, a.num_cols)};
  ops().gdn_gates(
      {a.view(), b.view(), span_of(A_log), span_of(dt_bias), out.g.view(), out.beta.view()},
      context());
  return out;
}

Matrix<bf16> run_gdn_chunk(const GdnInput& in, int32_t position, Matrix<float>& state) {
  return run_gdn(ops().gdn_chunk, in, position, state);
}

Matrix<bf16> run_gdn_step(const GdnInput& in, int32_t position, Matrix<float>& state) {
  return run_gdn(ops().gdn_step, in, position, state);
}

GdnInput gdn_rows(const GdnInput& in, int64_t first, int64_t count) {
  return {in.shape, rows_of(in.qkv, first, count), rows_of(in.g, first, count),
          rows_of(in.beta, first, count)};
}

// The oracle's chain: fp32 power, fp32 reciprocal, fp32 product with the position, then the cosine
// of that fp32 angle rounded to fp32 and to bf16.
std::vector<float> rope_inv_freq(const RopeForm& form) {
  std::vector<float> out;
  for (int64_t i = 0; i < form.rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(form.rotary_dim);
    const auto power = static_cast<float>(std::pow(form.theta, static_cast<double>(exponent)));
    out.push_back(1.0f / power);
  }
  return out;
}

RopeTable rope_rows(const std::vector<int32_t>& positions, const RopeForm& form) {
  const std::vector<float> inv_freq = rope_inv_freq(form);
  const auto half = static_cast<int64_t>(inv_freq.size());
  const auto n = static_cast<int64_t>(positions.size());
  RopeTable out{Matrix<float>(n, half), Matrix<float>(n, half)};
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t i = 0; i < half; ++i) {
      const auto position = static_cast<float>(positions[static_cast<size_t>(r)]);
      const float f = inv_freq[static_cast<size_t>(i)];
      const double angle = form.double_angle
                               ? static_cast<double>(position) *
                                     std::pow(form.theta, -2.0 * static_cast<double>(i) /
                                                              static_cast<double>(form.rotary_dim))
                               : static_cast<double>(position * f);
      const auto c = static_cast<float>(std::cos(angle));
      const auto s = static_cast<float>(std::sin(angle));
      out.cos.row(r)[i] = form.round ? rb(c) : c;
      out.sin.row(r)[i] = form.round ? rb(s) : s;
    }
  }
  return out;
}

KvPages::KvPages(int64_t kv_heads, int64_t head_dim, int64_t num_positions) {
  const int64_t pages = (num_positions + kKvPageTokens - 1) / kKvPageTokens;
  view.page_stride = 2 * kv_heads * kKvPageTokens * head_dim;
  view.num_kv_heads = kv_heads;
  view.head_dim = head_dim;
  data.resize(static_cast<size_t>(pages * view.page_stride), to_bf16(std::nanf("")));
  view.data = data.data();
  for (int64_t p = 0; p < pages; ++p) page_table.push_back(static_cast<int32_t>(pages - 1 - p));
}

void KvPages::put(int64_t position, const bf16* k, const bf16* v) {
  const int32_t page = page_table[static_cast<size_t>(position / kKvPageTokens)];
  for (int64_t h = 0; h < view.num_kv_heads; ++h) {
    const int64_t token = position % kKvPageTokens;
    std::copy_n(k + h * view.head_dim, view.head_dim, view.k_row(page, h, token));
    std::copy_n(v + h * view.head_dim, view.head_dim, view.v_row(page, h, token));
  }
}

Matrix<bf16> KvPages::keys(int64_t position) const {
  Matrix<bf16> out(1, view.num_kv_heads * view.head_dim);
  const int32_t page = page_table[static_cast<size_t>(position / kKvPageTokens)];
  for (int64_t h = 0; h < view.num_kv_heads; ++h) {
    std::copy_n(view.k_row(page, h, position % kKvPageTokens), view.head_dim,
                out.row(0) + h * view.head_dim);
  }
  return out;
}

Matrix<bf16> run_attn_prepare(const PrepareInput& in, const RopeForm& form, Matrix<bf16>& keys) {
  const int64_t dim = in.shape.head_dim;
  Matrix<bf16> q(in.qg.num_rows, in.shape.num_heads * dim);
  keys = Matrix<bf16>(in.k.num_rows, in.k.num_cols);
  // One row and one position at a time: the table has that one row, seen at the row's position.
  for (int64_t r = 0; r < in.qg.num_rows; ++r) {
    const int32_t position = in.positions[static_cast<size_t>(r)];
    const RopeTable table = rope_rows({position}, form);
    const int64_t half = table.cos.num_cols;
    Matrix<float> cos(position + 1, half);
    Matrix<float> sin(position + 1, half);
    std::copy_n(table.cos.row(0), half, cos.row(position));
    std::copy_n(table.sin.row(0), half, sin.row(position));
    KvPages pages(in.shape.num_kv_heads, dim, 2 * kKvPageTokens);
    const std::vector<int32_t> page_table(static_cast<size_t>(position / kKvPageTokens + 1), 1);
    RowRun run = whole_run(1, position);
    run.page_table = page_table.data();
    ops().attn_prepare({in.shape,
                        in.qg.view().rows(r, 1),
                        in.k.view().rows(r, 1),
                        in.v.view().rows(r, 1),
                        span_of(in.q_norm),
                        span_of(in.k_norm),
                        1e-6f,
                        cos.view(),
                        sin.view(),
                        {&run, 1},
                        pages.view,
                        q.view().rows(r, 1)},
                       context());
    pages.page_table = {1, 1};
    const Matrix<bf16> row = pages.keys(position % kKvPageTokens);
    std::copy(row.values.begin(), row.values.end(), keys.row(r));
  }
  return q;
}

Matrix<bf16> run_attention(const AttentionShape& shape, const Matrix<bf16>& q,
                           const Matrix<bf16>& qg, KvPages& kv, int64_t num_positions) {
  Matrix<bf16> out(q.num_rows, q.num_cols);
  RowRun run = whole_run(q.num_rows, static_cast<int32_t>(num_positions - q.num_rows));
  run.page_table = kv.page_table.data();
  ops().attention({shape, q.view(), qg.view(), {&run, 1}, kv.view, out.view()}, context());
  return out;
}

}  // namespace sluice::golden
