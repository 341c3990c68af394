// How much scratch the linears of any instruction set take.
#include <algorithm>

#include "ops/cpu/cpu_kernels.h"

namespace sluice {

size_t cpu_linear_scratch_bytes(const OpDims& dims) {
  const GdnShape& gdn = dims.gdn;
  const AttentionShape& attention = dims.attention;
  // The draft head's first linear reads two hidden states.
  const int64_t num_in_max = std::max({2 * dims.hidden, dims.intermediate, gdn.value_width(),
                                       attention.num_heads * attention.head_dim});
  constexpr int64_t kTile = 16;
  // AMX: x in panels of 16 rows, and kLinearWorkerBytes for each worker (checked there). The vector sets: two tiles of widened
  // weights for each worker.
  const int64_t panels = (dims.num_rows_max + kTile - 1) / kTile * kTile * num_in_max;
  const int64_t widened = 2 * kTile * num_in_max * dims.num_threads;
  const auto many = kLinearWorkerBytes * static_cast<size_t>(dims.num_threads);
  return static_cast<size_t>(panels + widened) * sizeof(bf16) + many + 3 * Arena::kAlignment;
}

}  // namespace sluice
