#pragma once
// attn_prepare and attention once more, in plain fp32 and independent of ops/ref, with a switch for
// each mistake a port can make: the negative controls. Without a mistake this is also the "plain
// implementation" whose error the tolerances are made of.

#include "ops/attention.h"

namespace sluice {

enum class PrepareMistake {
  kNone,
  kMissingOnePlus,
  kRotateEvenOdd,
  kRotateOtherWay,
  kRotateWholeHead,
  kPositionOffByOne,
  kGateHalvesSwapped,
  kGatesAfterAllQueries,
  kRotateUnroundedNorm,
  kKeyNotRotated,
  kValueNormed,
};
void prepare_twin(const AttnPrepareArgs& args, PrepareMistake mistake);

enum class AttentionMistake {
  kNone,
  kPageOffByOne,
  kNotCausal,
  kMissesItself,
  kHeadModulo,
  kNoScale,
  kScoresNotRounded,
  kProbabilitiesNotRounded,
  kGateIsSilu,
  kGateHalvesSwapped,
};
void attention_twin(const AttentionArgs& args, AttentionMistake mistake);

}  // namespace sluice
