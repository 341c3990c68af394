// Implements gdn_chunk of ops/gdn.h: the WY form. Spec 3.7, whose step numbers the comments name.
#include <algorithm>

#include "ops/ref/gdn_rows.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(Vector& out, double scale, const Vector& x) {
  for (size_t i = 0; i < out.size(); ++i) out[i] += scale * x[i];
}

/// One head's chunk of n <= kGdnChunk rows. A shorter chunk equals one padded with
/// k = v = beta = g = 0: padding rows change no earlier row and not the state.
struct Chunk {
  std::vector<GdnHeadRow> rows;
  Vector G;  // inclusive cumulative sum of g inside the chunk

  size_t size() const { return rows.size(); }
  double decay(size_t i, size_t j) const { return std::exp(G[i] - G[j]); }  // D, i >= j
};

Chunk read_chunk(const GdnArgs& args, int64_t first_row, int64_t num_rows, int64_t head) {
  Chunk chunk;
  double sum = 0.0;
  for (int64_t r = first_row; r < first_row + num_rows; ++r) {
    chunk.rows.push_back(read_gdn_row(args, r, head));
    sum += chunk.rows.back().g;
    chunk.G.push_back(sum);
  }
  return chunk;
}

/// Steps 1 to 4 as T-new does them: (I - A) X = rhs with unit diagonal, A = -(kb k^T) o D strictly
/// below it, solved row after row. `rhs` becomes X.
void solve_unit_lower(const Chunk& chunk, Matrix& rhs) {
  for (size_t i = 0; i < chunk.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double kb_k = chunk.rows[i].beta * dot(chunk.rows[i].k, chunk.rows[j].k);
      add_scaled(rhs[i], -kb_k * chunk.decay(i, j), rhs[j]);
    }
  }
}

/// u = T vb, vb = v * beta.
Matrix solve_u(const Chunk& chunk) {
  Matrix u;
  for (const GdnHeadRow& row : chunk.rows) {
    u.emplace_back(row.v.size(), 0.0);
    add_scaled(u.back(), row.beta, row.v);
  }
  solve_unit_lower(chunk, u);
  return u;
}

/// w = T (kb * exp(G)), kb = k * beta.
Matrix solve_w(const Chunk& chunk) {
  Matrix w;
  for (size_t i = 0; i < chunk.size(); ++i) {
    w.emplace_back(chunk.rows[i].k.size(), 0.0);
    add_scaled(w.back(), chunk.rows[i].beta * std::exp(chunk.G[i]), chunk.rows[i].k);
  }
  solve_unit_lower(chunk, w);
  return w;
}

/// x S for a row x.
Vector times_state(const Vector& x, const Matrix& S) {
  Vector out(S[0].size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) add_scaled(out, x[i], S[i]);
  return out;
}

/// Step 5: o = (q * exp(G)) S + B vn with B = (q k^T) o D including the diagonal.
Vector output_row(const Chunk& chunk, size_t i, const Matrix& vn, const Matrix& S) {
  Vector o = times_state(chunk.rows[i].q, S);
  for (double& x : o) x *= std::exp(chunk.G[i]);
  for (size_t j = 0; j <= i; ++j) {
    add_scaled(o, dot(chunk.rows[i].q, chunk.rows[j].k) * chunk.decay(i, j), vn[j]);
  }
  return o;
}

/// Step 5: S <- S * exp(G_last) + (k * exp(G_last - G))^T vn.
void advance_state(const Chunk& chunk, const Matrix& vn, Matrix& S) {
  const size_t last = chunk.size() - 1;
  for (size_t i = 0; i < S.size(); ++i) {
    for (double& x : S[i]) x *= std::exp(chunk.G[last]);
    for (size_t r = 0; r < chunk.size(); ++r) {
      add_scaled(S[i], chunk.rows[r].k[i] * chunk.decay(last, r), vn[r]);
    }
  }
}

Matrix load_state(const float* S, int64_t dim_k, int64_t dim_v) {
  Matrix out;
  for (int64_t i = 0; i < dim_k; ++i) out.emplace_back(S + i * dim_v, S + (i + 1) * dim_v);
  return out;
}

/// Rounds to fp32, so that a sequence cut here and continued gives the same bits.
void store_state(const Matrix& S, float* out) {
  for (const Vector& row : S) {
    out =
        std::transform(row.begin(), row.end(), out, [](double x) { return static_cast<float>(x); });
  }
}

void run_chunk(const GdnArgs& args, int64_t first_row, int64_t num_rows, int64_t head,
               float* state) {
  const GdnShape& shape = args.shape;
  const Chunk chunk = read_chunk(args, first_row, num_rows, head);
  Matrix S = load_state(state, shape.head_k_dim, shape.head_v_dim);
  const Matrix w = solve_w(chunk);
  Matrix vn = solve_u(chunk);  // becomes u - w S
  for (size_t i = 0; i < chunk.size(); ++i) add_scaled(vn[i], -1.0, times_state(w[i], S));
  for (size_t i = 0; i < chunk.size(); ++i) {
    const Vector o = output_row(chunk, i, vn, S);
    bf16* out = args.o.row(first_row + static_cast<int64_t>(i)) + head * shape.head_v_dim;
    std::transform(o.begin(), o.end(), out, round_bf16);
  }
  advance_state(chunk, vn, S);
  store_state(S, state);
}

void run_head(const GdnArgs& args, const RowRun& run, int64_t head) {
  const int64_t head_size = args.shape.head_k_dim * args.shape.head_v_dim;
  float* state = args.state.slot(run.slot) + head * head_size;
  const int64_t boundary = (run.position + run.num_rows) / kGdnChunk * kGdnChunk - run.position;
  for (int64_t done = 0; done < run.num_rows;) {
    const int64_t n = std::min(kGdnChunk, run.num_rows - done);
    run_chunk(args, run.first_row + done, n, head, state);
    done += n;
    if (done == boundary && run.checkpoint_slot != kNoSlot) {
      std::copy_n(state, head_size, args.state.slot(run.checkpoint_slot) + head * head_size);
    }
  }
}

}  // namespace

void gdn_chunk(const GdnArgs& args, OpContext&) {
  for (const RowRun& run : args.runs) {
    SLUICE_CHECK_EQ(run.position % kGdnChunk, 0);
    for (int64_t h = 0; h < args.shape.num_v_heads; ++h) run_head(args, run, h);
  }
}

}  // namespace sluice::ref
