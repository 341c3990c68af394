// Implements ops/embed.h. Spec 3.1 step 1.
#include <algorithm>

#include "ops/ref/ref_ops.h"

namespace sluice::ref {

void embed(const EmbedArgs& args, OpContext&) {
  for (int64_t i = 0; i < args.out.num_rows; ++i) {
    const int32_t id = args.token_ids[static_cast<size_t>(i)];
    SLUICE_CHECK_GE(id, 0);
    SLUICE_CHECK_LT(id, args.table.num_rows);
    std::copy_n(args.table.row(id), args.out.num_cols, args.out.row(i));
  }
}

}  // namespace sluice::ref
