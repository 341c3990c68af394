#pragma once
// The scratch of gdn_chunk, stated once for the kernel and for its bound.

#include "ops/gdn.h"

namespace sluice {

/// A worker's q, k and k^T; its v and o; its two triangles. Always a multiple of 64 bytes.
inline int64_t gdn_chunk_scratch_floats(const GdnShape& shape) {
  return kGdnChunk * (3 * shape.head_k_dim + 2 * shape.head_v_dim + 2 * kGdnChunk);
}

}  // namespace sluice
