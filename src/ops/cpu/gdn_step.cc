// Implements gdn_step of ops/gdn.h. Test: tests/ops gdn_step. Log: gdn.log.md.
// Idea: a task owns some columns of a head's state over all rows of a run, so the state comes from
// memory once a call and from L1 for every row after the first.
// Accumulation: fp32; a column sums even and odd key dims apart, each in order. It depends on
// nothing but the column.
// Bytes: the state once in and once out a call; 2 x 64 KiB a head of 128 x 128 (derived).
#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/gdn_rows.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

/// Vectors of columns a task owns at most: 64 columns of 128 dims are 32 KiB.
constexpr int kSliceVecs = 4;
/// From this many rows on the slice is worked on in a copy: in the state its rows lie 512 bytes
/// apart and fall into half the sets of L1, which then does not keep them.
constexpr int32_t kRowsToCopy = 2;

/// One row over kVecs * kLanes columns of S, [dim_k] rows of `stride` floats.
template <int kVecs>
struct Columns {
  float* S;
  int64_t stride;
  int64_t dim_k;

  struct Sums {
    Vec of[2][kVecs];
    Vec total(int c) const { return add(of[0][c], of[1][c]); }
  };
  static Sums no_sums() {
    Sums sums;
    for (int c = 0; c < kVecs; ++c) sums.of[0][c] = sums.of[1][c] = zero();
    return sums;
  }

  /// S^T k, undecayed.
  Sums read(const float* k) const {
    Sums sums = no_sums();
    for (int64_t i = 0; i < dim_k; i += 2) {
      for (int half = 0; half < 2; ++half) {
        const Vec ki = broadcast(k[i + half]);
        for (int c = 0; c < kVecs; ++c) {
          sums.of[half][c] = fma(load(S + (i + half) * stride + c * kLanes), ki, sums.of[half][c]);
        }
      }
    }
    return sums;
  }

  /// S <- decay S + k d^T; returns S^T q of the new S.
  Sums update(float decay, const float* k, const Vec d[], const float* q) const {
    Sums sums = no_sums();
    const Vec by = broadcast(decay);
    for (int64_t i = 0; i < dim_k; i += 2) {
      for (int half = 0; half < 2; ++half) {
        const Vec ki = broadcast(k[i + half]);
        const Vec qi = broadcast(q[i + half]);
        for (int c = 0; c < kVecs; ++c) {
          float* s = S + (i + half) * stride + c * kLanes;
          const Vec next = fma(ki, d[c], mul(load(s), by));
          store(s, next);
          sums.of[half][c] = fma(next, qi, sums.of[half][c]);
        }
      }
    }
    return sums;
  }

  void advance(const float* q, const float* k, const bf16* v, float g, float beta, bf16* o) const {
    // The decay multiplies the state thousands of times: it gets the exact exponential.
    const auto decay = static_cast<float>(std::exp(static_cast<double>(g)));
    const Sums memory = read(k);
    Vec d[kVecs];
    for (int c = 0; c < kVecs; ++c) {
      const Vec error = sub(load(v + c * kLanes), mul(memory.total(c), broadcast(decay)));
      d[c] = mul(error, broadcast(beta));
    }
    const Sums out = update(decay, k, d, q);
    for (int c = 0; c < kVecs; ++c) store(o + c * kLanes, out.total(c));
  }
};

struct Slice {
  const GdnArgs& args;
  const RowRun& run;
  int64_t head;
  int64_t first_column;

  template <int kVecs>
  void run_in_place() const {
    const GdnHead at(args.shape, head);
    float* S = args.state.slot(run.slot) + at.state + first_column;
    run_rows(at, Columns<kVecs>{S, at.dim_v, at.dim_k});
  }

  template <int kVecs>
  void run_in_copy() const {
    constexpr int64_t kWidth = kVecs * kLanes;
    alignas(64) float copy[kGdnMaxKeyDim * kWidth];
    const GdnHead at(args.shape, head);
    float* S = args.state.slot(run.slot) + at.state + first_column;
    for (int64_t i = 0; i < at.dim_k; ++i) std::copy_n(S + i * at.dim_v, kWidth, copy + i * kWidth);
    run_rows(at, Columns<kVecs>{copy, kWidth, at.dim_k});
    for (int64_t i = 0; i < at.dim_k; ++i) std::copy_n(copy + i * kWidth, kWidth, S + i * at.dim_v);
  }

  template <int kVecs>
  void run_rows(const GdnHead& at, const Columns<kVecs>& columns) const {
    alignas(64) float q[kGdnMaxKeyDim];
    alignas(64) float k[kGdnMaxKeyDim];
    for (int64_t r = run.first_row; r < run.first_row + run.num_rows; ++r) {
      const bf16* qkv = args.qkv.row(r);
      at.read_q(qkv, q);
      at.read_k(qkv, k);
      columns.advance(q, k, qkv + at.v + first_column, args.g.row(r)[head], args.beta.row(r)[head],
                      args.o.row(r) + at.o + first_column);
    }
  }

  template <int kVecs>
  void run_all() const {
    return run.num_rows < kRowsToCopy ? run_in_place<kVecs>() : run_in_copy<kVecs>();
  }
};

void run_slice(const Slice& slice, int64_t num_columns) {
  switch (num_columns / kLanes) {
    case 1:
      return slice.run_all<1>();
    case 2:
      return slice.run_all<2>();
    case 3:
      return slice.run_all<3>();
    default:
      return slice.run_all<kSliceVecs>();
  }
}

}  // namespace

void gdn_step(const GdnArgs& args, OpContext& context) {
  constexpr int64_t kColumns = kSliceVecs * kLanes;
  const GdnShape& shape = args.shape;
  const int64_t slices = (shape.head_v_dim + kColumns - 1) / kColumns;
  const int64_t per_run = shape.num_v_heads * slices;
  const auto num_runs = static_cast<int64_t>(args.runs.size());
  context.pool->parallel_for(num_runs * per_run, [&](int64_t task, int) {
    const int64_t first = task % slices * kColumns;
    const Slice slice{args, args.runs[static_cast<size_t>(task / per_run)], task % per_run / slices,
                      first};
    run_slice(slice, std::min(kColumns, shape.head_v_dim - first));
  });
}

}  // namespace sluice::SLUICE_CPU_NS
