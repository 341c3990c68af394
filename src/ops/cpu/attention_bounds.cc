// How much scratch the attention ops of any instruction set take.
#include "ops/cpu/attention_scratch.h"
#include "ops/cpu/cpu_kernels.h"

namespace sluice {

size_t cpu_attention_scratch_bytes(const OpDims& dims) {
  const AttentionShape& shape = dims.attention;
  const int64_t spans = num_spans(dims.context_max);
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  // Any shorter context fits as well: its scores stay within the budget or are one row's.
  const auto bytes = [&](int64_t heads, bool split) {
    const int64_t queries = std::max<int64_t>(kScoreBudget / kKvPageTokens, heads * spans);
    const AttentionScratch flat(queries, 1, split ? 1 : 0, shape.head_dim);
    const AttentionScratch sums(kTileRowsMax * heads, 0, split ? 0 : 1, shape.head_dim);
    return flat.num_bytes() + sums.num_bytes() + 2 * static_cast<int64_t>(Arena::kAlignment);
  };
  return static_cast<size_t>(
      std::max(dims.num_threads * bytes(group, false), bytes(shape.num_heads, true)));
}

}  // namespace sluice
