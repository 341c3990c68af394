// Implements ops/embed.h. Test: tests/ops embed.
#include <cstring>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {

void embed(const EmbedArgs& args, OpContext& context) {
  const auto row_bytes = static_cast<size_t>(args.out.num_cols) * sizeof(bf16);
  for_each_row(context, args.out.num_rows, args.out.num_cols, [&](int64_t r) {
    const int32_t id = args.token_ids[static_cast<size_t>(r)];
    SLUICE_CHECK(id >= 0 && id < args.table.num_rows);
    std::memcpy(args.out.row(r), args.table.row(id), row_bytes);
  });
}

}  // namespace sluice::SLUICE_CPU_NS
