#pragma once
// The WY form once more, in fp64 and independent of ops/ref, with a switch for each mistake that only
// this form can make: the negative controls of its statistics.

#include "ops/gdn.h"

namespace sluice {

enum class ChunkMistake {
  kNone,
  kDecayAnchoredEarly,  // sums of g without the row's own
  kDecayOnceTooOften,   // a row's own g acts on what it writes
  kSumNotRestarted,     // the sum of g runs on into the next chunk
  kSumInFp32,           // of which differences are taken
  kDecayRounded,        // to bf16
  kBoundaryNotDecayed,  // the state enters the next chunk as it was written
  kPaddingNotZeroed,    // rows up to a multiple of 16 are the previous chunk's
};

/// As an op without checkpoints: state loaded from fp32, kept in fp64, stored as fp32.
void gdn_chunk_twin(const GdnArgs& args, ChunkMistake mistake);

}  // namespace sluice
