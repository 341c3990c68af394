// Implements gdn_step of ops/gdn.h. Spec 3.5 steps 6 to 8.
#include "ops/ref/gdn_rows.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

/// One column of the state, S[:, j] with stride `dim_v`: decay, read for the error, update, read
/// for the output, in this order.
double advance_column(const GdnHeadRow& row, size_t j, int64_t dim_v, float* S) {
  const double decay = std::exp(row.g);
  std::vector<double> column(row.k.size());
  double memory = 0.0;
  for (size_t i = 0; i < column.size(); ++i) {
    column[i] = static_cast<double>(S[static_cast<int64_t>(i) * dim_v]) * decay;
    memory += column[i] * row.k[i];
  }
  const double d = (row.v[j] - memory) * row.beta;
  double o = 0.0;
  for (size_t i = 0; i < column.size(); ++i) {
    column[i] += row.k[i] * d;
    o += column[i] * row.q[i];
    S[static_cast<int64_t>(i) * dim_v] = static_cast<float>(column[i]);
  }
  return o;
}

}  // namespace

void gdn_step(const GdnArgs& args, OpContext&) {
  const GdnShape& shape = args.shape;
  for (const RowRun& run : args.runs) {
    for (int64_t r = run.first_row; r < run.first_row + run.num_rows; ++r) {
      for (int64_t h = 0; h < shape.num_v_heads; ++h) {
        const GdnHeadRow row = read_gdn_row(args, r, h);
        float* S = args.state.slot(run.slot) + h * shape.head_k_dim * shape.head_v_dim;
        bf16* o = args.o.row(r) + h * shape.head_v_dim;
        for (int64_t j = 0; j < shape.head_v_dim; ++j) {
          o[j] = round_bf16(advance_column(row, size_of(j), shape.head_v_dim, S + j));
        }
      }
    }
  }
}

}  // namespace sluice::ref
