#include "ops/op_table.h"

#include <algorithm>

namespace sluice {

bool host_begin_step(const StepRows& rows, OpContext&) {
  return rows.is_rehearsal;
}

void host_end_step(OpContext&) {}

void host_gather(const GatherArgs& args, OpContext&) {
  for (size_t i = 0; i < args.rows.size(); ++i) {
    const int32_t row = args.rows[i];
    SLUICE_CHECK_LT(row, args.x.num_rows);
    std::copy_n(args.x.row(row), args.x.num_cols, args.out.row(static_cast<int64_t>(i)));
  }
}

Result<std::unique_ptr<BackendState>> open_backend_state(const OpTable& ops, const OpDims& dims) {
  if (ops.open_state == nullptr) return std::unique_ptr<BackendState>();
  return ops.open_state(dims);
}

int64_t padded_rows(const OpTable& ops, int64_t num_rows) {
  return ops.padded_rows == nullptr ? num_rows : ops.padded_rows(num_rows);
}

}  // namespace sluice
