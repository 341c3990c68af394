// How much scratch the attention ops of any instruction set take.
#include "ops/cpu/attention_scratch.h"
#include "ops/cpu/cpu_kernels.h"

namespace sluice {

size_t cpu_attention_scratch_bytes(const OpDims& dims) {
  const AttentionShape& shape = dims.attention;
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  int64_t by_tiles = 0;
  int64_t by_spans = 0;
  // A context's tile shrinks as the context grows, so every length is asked.
  for (int64_t spans = 1; spans <= num_spans(dims.context_max); ++spans) {
    const AttentionScratch tile(1, tile_rows(group, spans) * group, spans, 1, shape.head_dim);
    const AttentionScratch split(shape.num_kv_heads, tile_rows(shape.num_heads, spans) * group,
                                 spans, spans, shape.head_dim);
    by_tiles = std::max(by_tiles, tile.num_bytes());
    by_spans = std::max(by_spans, split.num_bytes());
  }
  return static_cast<size_t>(std::max(dims.num_threads * by_tiles, by_spans)) + Arena::kAlignment;
}

}  // namespace sluice
