#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/bf16.h"
#include "decode/sampling_params.h"
#include "decode/stop.h"

namespace sluice {

/// Which ids a request has seen, for the penalties. Counts accepted tokens only.
class TokenCounts {
 public:
  void add_prompt(std::span<const int32_t> ids);
  void add_generated(int32_t id);

  struct Count {
    int32_t generated = 0;
    bool in_prompt = false;
  };
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Count> counts_;
};

struct SampledToken {
  int32_t id = 0;
  TokenLogprobs logprobs;
};

/// kDataLoss: a logit is NaN or positive infinity. A wrong token is worse than none.
Status unsound_logits();

/// Draws from one row of logits; a Sampler serves one draw at a time. Its buffers of vocabulary size are
/// taken once, but for log probabilities and for top-p without top-k.
class Sampler {
 public:
  /// Ids at and above `num_defined` (padding rows of the vocabulary) are never drawn.
  Sampler(int64_t vocab_size, int32_t num_defined);

  /// logits [vocab_size] bf16, widened to fp32 first. `position` is the drawn token's own.
  /// Greedy takes the lowest id among ties; so does the noisy argmax.
  /// kDataLoss when a logit is NaN or positive infinity: a wrong token is worse than none.
  Result<SampledToken> sample(std::span<const bf16> logits, const SamplingParams& params,
                              const TokenCounts& counts, int64_t position);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  Status widen(std::span<const bf16> logits);
  double log_sum_exp() const;
  std::vector<TokenLogprob> top_logprobs(int32_t count, double log_sum) const;
  void apply_penalties(const SamplingParams& params, const TokenCounts& counts);
  int32_t greedy() const;
  void keep_top_k(int32_t top_k);
  void keep_top_p(float top_p);
  void keep_min_p(float min_p);
  int32_t draw(const SamplingParams& params, int64_t position);

  int32_t num_defined_;
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;
  std::vector<float> selected_;  // keep_top_k's copy of the logits
};

}  // namespace sluice
