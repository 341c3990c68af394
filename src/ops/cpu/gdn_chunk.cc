// Implements gdn_chunk of ops/gdn.h. Test: tests/ops gdn_chunk. Log: gdn.log.md.
// Idea: the WY form with w never formed: T (v beta) - T (k beta exp(G)) S = T (beta (v - exp(G) k S)),
// so the triangular solve has head_v_dim columns instead of head_k_dim + head_v_dim.
// Accumulation: fp32, every element one chain in the order of its sum; the cumulative sums of g and
// their differences are double, because |G| may be 1,000 where a difference is 1e-3.
// Rows are padded to a multiple of 16 with k = v = beta = g = 0; a row's chains end at the block of
// 16 it lies in, so a longer chunk gives it the same bits.
#include <algorithm>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/gdn_rows.h"
#include "ops/cpu/gdn_scratch.h"
#include "ops/cpu/vec_gemm.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

constexpr int64_t kBlock = 16;  // rows that are solved together

/// One head's chunk in a worker's scratch.
class Chunk {
 public:
  Chunk(const GdnArgs& args, int64_t head, float* scratch)
      : args_(args), at_(args.shape, head), head_(head) {
    q_ = scratch;
    k_ = q_ + kGdnChunk * at_.dim_k;
    kT_ = k_ + kGdnChunk * at_.dim_k;
    x_ = kT_ + kGdnChunk * at_.dim_k;
    o_ = x_ + kGdnChunk * at_.dim_v;
    A_ = o_ + kGdnChunk * at_.dim_v;
    B_ = A_ + kGdnChunk * kGdnChunk;
  }

  /// Rows [first_row, first_row + num_rows), num_rows <= kGdnChunk; S is read and advanced.
  void run(int64_t first_row, int64_t num_rows, float* S) {
    num_rows_ = num_rows;
    padded_ = (num_rows + kBlock - 1) / kBlock * kBlock;
    read_rows(first_row);
    form_triangles();
    form_errors(first_row, S);
    solve();
    form_outputs(first_row, S);
    advance_state(S);
  }

 private:
  void read_rows(int64_t first_row) {
    double sum = 0.0;
    for (int64_t i = 0; i < padded_; ++i) {
      if (i >= num_rows_) {
        std::fill_n(q_ + i * at_.dim_k, at_.dim_k, 0.0f);
        std::fill_n(k_ + i * at_.dim_k, at_.dim_k, 0.0f);
        beta_[i] = 0.0f;
        G_[i] = sum;
        continue;
      }
      at_.read_q(args_.qkv.row(first_row + i), q_ + i * at_.dim_k);
      at_.read_k(args_.qkv.row(first_row + i), k_ + i * at_.dim_k);
      beta_[i] = args_.beta.row(first_row + i)[head_];
      G_[i] = sum += static_cast<double>(args_.g.row(first_row + i)[head_]);
    }
    for (int64_t i = 0; i < padded_; ++i) {
      for (int64_t c = 0; c < at_.dim_k; ++c) kT_[c * kGdnChunk + i] = k_[i * at_.dim_k + c];
    }
    exp_differences(G_, 0.0, padded_, exp_G_);
  }

  /// out[j] = exp(a[j] - b), rounded to fp32 before the exponential.
  static void exp_differences(const double* a, double b, int64_t n, float* out) {
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<float>(a[j] - b);
    for (int64_t j = 0; j < n; j += kLanes) store(out + j, exp(load(out + j)));
  }

  /// A = -(beta k k^T) o D strictly below the diagonal, B = (q k^T) o D up to it, D_ij =
  /// exp(G_i - G_j); zero above, within the diagonal's blocks.
  void form_triangles() {
    for (int64_t b = 0; b < padded_; b += kBlock) {
      const int64_t cols = b + kBlock;
      gemm({k_ + b * at_.dim_k, at_.dim_k}, {kT_, kGdnChunk}, A_ + b * kGdnChunk, kGdnChunk, kBlock,
           cols, at_.dim_k, GemmStart::kZero);
      gemm({q_ + b * at_.dim_k, at_.dim_k}, {kT_, kGdnChunk}, B_ + b * kGdnChunk, kGdnChunk, kBlock,
           cols, at_.dim_k, GemmStart::kZero);
      for (int64_t i = b; i < b + kBlock; ++i) apply_decay(i, cols);
    }
  }

  void apply_decay(int64_t i, int64_t cols) {
    alignas(64) float difference[kGdnChunk];
    for (int64_t j = 0; j < cols; ++j) difference[j] = static_cast<float>(G_[i] - G_[j]);
    float* a = A_ + i * kGdnChunk;
    float* b = B_ + i * kGdnChunk;
    const Vec minus_beta = broadcast(-beta_[i]);
    for (int64_t j = 0; j < cols; j += kLanes) {
      // Above the diagonal the differences are >= 0 and may overflow; those are cleared below.
      const Vec D = exp(min(load(difference + j), zero()));
      store(a + j, mul(mul(load(a + j), minus_beta), D));
      store(b + j, mul(load(b + j), D));
    }
    std::fill(a + i, a + cols, 0.0f);
    std::fill(b + i + 1, b + cols, 0.0f);
  }

  /// x = beta (v - exp(G) k S)
  void form_errors(int64_t first_row, const float* S) {
    gemm({k_, at_.dim_k}, {S, at_.dim_v}, x_, at_.dim_v, padded_, at_.dim_v, at_.dim_k,
         GemmStart::kZero);
    std::fill(x_ + num_rows_ * at_.dim_v, x_ + padded_ * at_.dim_v, 0.0f);
    for (int64_t i = 0; i < num_rows_; ++i) {
      const bf16* v = args_.qkv.row(first_row + i) + at_.v;
      float* x = x_ + i * at_.dim_v;
      const Vec minus_decay = broadcast(-exp_G_[i]);
      const Vec beta = broadcast(beta_[i]);
      for (int64_t c = 0; c < at_.dim_v; c += kLanes) {
        store(x + c, mul(beta, fma(minus_decay, load(x + c), load(v + c))));
      }
    }
  }

  /// x <- (I - A)^-1 x, block after block.
  void solve() {
    for (int64_t b = 0; b < padded_; b += kBlock) {
      float* x = x_ + b * at_.dim_v;
      if (b > 0) {
        gemm({A_ + b * kGdnChunk, kGdnChunk}, {x_, at_.dim_v}, x, at_.dim_v, kBlock, at_.dim_v, b,
             GemmStart::kAdd);
      }
      for (int64_t c = 0; c < at_.dim_v; c += kLanes) {
        solve_block(A_ + b * kGdnChunk + b, x + c);
      }
    }
  }

  /// kLanes columns of a block; A from the block's corner.
  void solve_block(const float* A, float* x) const {
    Vec solved[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) {
      Vec sum = load(x + i * at_.dim_v);
      for (int64_t j = 0; j < i; ++j) {
        sum = fma(broadcast(A[i * kGdnChunk + j]), solved[j], sum);
      }
      solved[i] = sum;
      store(x + i * at_.dim_v, sum);
    }
  }

  /// o = exp(G) q S + B x
  void form_outputs(int64_t first_row, const float* S) {
    for (int64_t i = 0; i < padded_; ++i) scale_row(q_ + i * at_.dim_k, at_.dim_k, exp_G_[i]);
    gemm({q_, at_.dim_k}, {S, at_.dim_v}, o_, at_.dim_v, padded_, at_.dim_v, at_.dim_k,
         GemmStart::kZero);
    for (int64_t b = 0; b < padded_; b += kBlock) {
      gemm({B_ + b * kGdnChunk, kGdnChunk}, {x_, at_.dim_v}, o_ + b * at_.dim_v, at_.dim_v, kBlock,
           at_.dim_v, b + kBlock, GemmStart::kAdd);
    }
    for (int64_t i = 0; i < num_rows_; ++i) {
      bf16* out = args_.o.row(first_row + i) + at_.o;
      for (int64_t c = 0; c < at_.dim_v; c += kLanes) store(out + c, load(o_ + i * at_.dim_v + c));
    }
  }

  /// S <- exp(G_last) S + (k exp(G_last - G))^T x
  void advance_state(float* S) {
    const double last = G_[padded_ - 1];
    for (int64_t j = 0; j < padded_; ++j) {
      const auto tail = static_cast<float>(std::exp(last - G_[j]));
      scale_row(x_ + j * at_.dim_v, at_.dim_v, tail);
    }
    // Acts on the state chunk after chunk: the exact exponential, as in gdn_step.
    const auto decay = static_cast<float>(std::exp(last));
    for (int64_t i = 0; i < at_.dim_k; ++i) scale_row(S + i * at_.dim_v, at_.dim_v, decay);
    gemm({kT_, kGdnChunk}, {x_, at_.dim_v}, S, at_.dim_v, at_.dim_k, at_.dim_v, padded_,
         GemmStart::kAdd);
  }

  static void scale_row(float* x, int64_t n, float by) {
    const Vec factor = broadcast(by);
    for (int64_t c = 0; c < n; c += kLanes) store(x + c, mul(load(x + c), factor));
  }

  const GdnArgs& args_;
  const GdnHead at_;
  const int64_t head_;
  int64_t num_rows_ = 0;
  int64_t padded_ = 0;
  float *q_, *k_, *kT_;  // [rows, dim_k] twice, [dim_k, kGdnChunk]
  float *x_, *o_;        // [rows, dim_v]
  float *A_, *B_;        // [rows, kGdnChunk]
  double G_[kGdnChunk];
  alignas(64) float exp_G_[kGdnChunk];
  float beta_[kGdnChunk];
};

void run_head(const GdnArgs& args, const RowRun& run, int64_t head, float* scratch) {
  const int64_t head_size = args.shape.head_k_dim * args.shape.head_v_dim;
  float* S = args.state.slot(run.slot) + head * head_size;
  const int64_t boundary = (run.position + run.num_rows) / kGdnChunk * kGdnChunk - run.position;
  Chunk chunk(args, head, scratch);
  for (int64_t done = 0; done < run.num_rows;) {
    const int64_t n = std::min<int64_t>(kGdnChunk, run.num_rows - done);
    chunk.run(run.first_row + done, n, S);
    done += n;
    if (done == boundary && run.checkpoint_slot != kNoSlot) {
      std::copy_n(S, head_size, args.state.slot(run.checkpoint_slot) + head * head_size);
    }
  }
}

}  // namespace

void gdn_chunk(const GdnArgs& args, OpContext& context) {
  for (const RowRun& run : args.runs) SLUICE_CHECK_EQ(run.position % kGdnChunk, 0);
  Arena::Scope scope(*context.scratch);
  const int64_t per_worker = gdn_chunk_scratch_floats(args.shape);
  float* scratch = context.scratch->take<float>(context.pool->num_threads() * per_worker);
  const int64_t heads = args.shape.num_v_heads;
  const auto num_tasks = static_cast<int64_t>(args.runs.size()) * heads;
  context.pool->parallel_for(num_tasks, [&](int64_t task, int worker) {
    run_head(args, args.runs[static_cast<size_t>(task / heads)], task % heads,
             scratch + worker * per_worker);
  });
}

}  // namespace sluice::SLUICE_CPU_NS
