#include "tests/ops/gdn_chunk_twin.h"

#include <algorithm>
#include <cmath>

#include "tests/ops/gdn_twin.h"

namespace sluice {
namespace {

using Vector = std::vector<double>;

constexpr int64_t kPadding = 16;

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(Vector& out, double scale, const double* x) {
  for (size_t j = 0; j < out.size(); ++j) out[j] += scale * x[j];
}

/// One head's run, chunk after chunk.
class Head {
 public:
  Head(const GdnArgs& args, int64_t head, double* S, ChunkMistake mistake)
      : args_(args), head_(head), S_(S), mistake_(mistake), rows_(kGdnChunk), G_(kGdnChunk) {}

  void run(int64_t first_row, int64_t num_rows) {
    int64_t size = num_rows;
    for (int64_t i = 0; i < num_rows; ++i) {
      rows_[index(i)] = read_gdn_twin_row(args_, first_row + i, head_);
    }
    if (mistake_ == ChunkMistake::kPaddingNotZeroed && has_previous_) {
      size = (num_rows + kPadding - 1) / kPadding * kPadding;
    }
    sum_g(size);
    std::vector<Vector> x;
    for (int64_t i = 0; i < size; ++i) x.push_back(error_of(i, x));
    for (int64_t i = 0; i < num_rows; ++i) store_output(i, x, args_.o.row(first_row + i));
    advance_state(size, x);
    has_previous_ = true;
  }

 private:
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  int64_t dim_v() const { return args_.shape.head_v_dim; }
  const GdnTwinRow& row(int64_t i) const { return rows_[index(i)]; }

  void sum_g(int64_t size) {
    double sum = mistake_ == ChunkMistake::kSumNotRestarted && has_previous_ ? last_ : 0.0;
    for (int64_t i = 0; i < size; ++i) {
      if (mistake_ == ChunkMistake::kDecayAnchoredEarly) G_[index(i)] = sum;
      sum += row(i).g;
      if (mistake_ == ChunkMistake::kSumInFp32) sum = static_cast<double>(static_cast<float>(sum));
      if (mistake_ != ChunkMistake::kDecayAnchoredEarly) G_[index(i)] = sum;
    }
    last_ = G_[index(size - 1)];
  }
  double decay(double exponent) const {
    const double d = std::exp(exponent);
    const bool rounded = mistake_ == ChunkMistake::kDecayRounded;
    return rounded ? static_cast<double>(rb(static_cast<float>(d))) : d;
  }
  /// From the chunk's start to row i.
  double from_start(int64_t i) const { return decay(G_[index(i)]); }
  /// From row j, written then, to row i.
  double between(int64_t i, int64_t j) const {
    const double own = mistake_ == ChunkMistake::kDecayOnceTooOften ? row(j).g : 0.0;
    return decay(G_[index(i)] - G_[index(j)] + own);
  }
  /// S^T x
  Vector read_state(const Vector& x) const {
    Vector out(index(dim_v()), 0.0);
    for (size_t i = 0; i < x.size(); ++i)
      add_scaled(out, x[i], S_ + static_cast<int64_t>(i) * dim_v());
    return out;
  }

  /// What row i writes: beta (v - what the state and the rows before it hold for k).
  Vector error_of(int64_t i, const std::vector<Vector>& before) const {
    Vector held = read_state(row(i).k);
    for (double& h : held) h *= from_start(i);
    for (size_t j = 0; j < before.size(); ++j) {
      const auto at = static_cast<int64_t>(j);
      add_scaled(held, between(i, at) * dot(row(i).k, row(at).k), before[j].data());
    }
    for (size_t c = 0; c < held.size(); ++c) held[c] = row(i).beta * (row(i).v[c] - held[c]);
    return held;
  }

  void store_output(int64_t i, const std::vector<Vector>& x, bf16* o_row) const {
    Vector o = read_state(row(i).q);
    for (double& value : o) value *= from_start(i);
    for (int64_t j = 0; j <= i; ++j) {
      add_scaled(o, between(i, j) * dot(row(i).q, row(j).k), x[index(j)].data());
    }
    std::transform(o.begin(), o.end(), o_row + head_ * dim_v(),
                   [](double value) { return to_bf16(static_cast<float>(value)); });
  }

  void advance_state(int64_t size, const std::vector<Vector>& x) const {
    const int64_t dim_k = args_.shape.head_k_dim;
    const double all = mistake_ == ChunkMistake::kBoundaryNotDecayed ? 1.0 : from_start(size - 1);
    std::for_each_n(S_, dim_k * dim_v(), [&](double& s) { s *= all; });
    for (int64_t j = 0; j < size; ++j) {
      const double tail = between(size - 1, j);
      for (int64_t i = 0; i < dim_k; ++i) {
        const double by = tail * row(j).k[index(i)];
        for (int64_t c = 0; c < dim_v(); ++c) S_[i * dim_v() + c] += by * x[index(j)][index(c)];
      }
    }
  }

  const GdnArgs& args_;
  int64_t head_;
  double* S_;
  ChunkMistake mistake_;
  std::vector<GdnTwinRow> rows_;
  Vector G_;
  double last_ = 0.0;
  bool has_previous_ = false;
};

}  // namespace

void gdn_chunk_twin(const GdnArgs& args, ChunkMistake mistake) {
  const int64_t head_size = args.shape.head_k_dim * args.shape.head_v_dim;
  for (const RowRun& run : args.runs) {
    float* slot = args.state.slot(run.slot);
    GdnState64 state(slot, slot + args.shape.state_size());
    for (int64_t h = 0; h < args.shape.num_v_heads; ++h) {
      Head head(args, h, state.data() + h * head_size, mistake);
      for (int64_t done = 0; done < run.num_rows; done += kGdnChunk) {
        head.run(run.first_row + done, std::min<int64_t>(kGdnChunk, run.num_rows - done));
      }
    }
    std::transform(state.begin(), state.end(), slot,
                   [](double s) { return static_cast<float>(s); });
  }
}

}  // namespace sluice
