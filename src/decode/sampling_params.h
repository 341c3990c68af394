#pragma once

#include <cstdint>

#include "base/status.h"

namespace sluice {

/// How the next token is drawn. The draw is a pure function of (logits, these, position), so a run repeats.
/// Order: penalties, temperature, top-k, top-p, min-p, Gumbel-max (model-spec section 8).
struct SamplingParams {
  /// 0 is greedy: the highest logit, the lowest id among ties.
  float temperature = 0.0f;
  /// Keeps every logit >= the k-th largest (ties can exceed k). 0: off.
  int32_t top_k = 0;
  /// Keeps the smallest set of the most likely with total probability >= top_p. 1: off.
  float top_p = 1.0f;
  /// Drops what is less likely than min_p times the most likely. 0: off.
  float min_p = 0.0f;
  /// Subtracted once from the logit of each id generated so far.
  float presence_penalty = 0.0f;
  /// Subtracted from a logit for each time its id was generated.
  float frequency_penalty = 0.0f;
  /// Positive logits of ids in the prompt or output are divided by it, negative ones multiplied. 1: off.
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  /// Log probabilities of the drawn token and of this many most likely ones. -1: none.
  int32_t num_logprobs = -1;

  /// kInvalidArgument naming the field, the value and the range.
  Status validate() const;
};

inline constexpr int32_t kMaxLogprobs = 20;
/// Below this a logit divided by the temperature could overflow.
inline constexpr float kTemperatureMin = 1e-4f;

}  // namespace sluice
