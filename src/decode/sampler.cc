#include "decode/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "decode/noise.h"

namespace sluice {
namespace {

/// A sum of probabilities relative to the likeliest, in units of 2^-96: exact, so the order does not matter and a device cuts where the host does.
__extension__ typedef unsigned __int128 Mass;

/// `probability` is at most 1; NaN counts as 0.
Mass mass_of(double probability) {
  if (!(probability > 0.0)) return 0;
  const double scaled = probability * 0x1p32;
  const auto high = static_cast<uint64_t>(scaled);
  const auto low = static_cast<uint64_t>((scaled - static_cast<double>(high)) * 0x1p64);
  return (static_cast<Mass>(high) << 64) | low;
}

double to_double(Mass mass) {
  return static_cast<double>(static_cast<uint64_t>(mass >> 64)) * 0x1p-32 +
         static_cast<double>(static_cast<uint64_t>(mass)) * 0x1p-96;
}

}  // namespace

void TokenCounts::add_prompt(std::span<const int32_t> ids) {
  for (const int32_t id : ids) counts_[id].in_prompt = true;
}

void TokenCounts::add_generated(int32_t id) {
  ++counts_[id].generated;
}

Sampler::Sampler(int64_t vocab_size, int32_t num_defined) : num_defined_(num_defined) {
  SLUICE_CHECK_GT(num_defined, 0);
  SLUICE_CHECK_LE(num_defined, vocab_size);
  logits_.resize(static_cast<size_t>(num_defined));
  candidates_.reserve(static_cast<size_t>(num_defined));
  selected_.reserve(static_cast<size_t>(num_defined));
}

Result<SampledToken> Sampler::sample(std::span<const bf16> logits, const SamplingParams& params,
                                     const TokenCounts& counts, int64_t position) {
  SLUICE_RETURN_IF_ERROR(widen(logits));
  SampledToken token;
  double log_sum = 0.0;
  if (params.num_logprobs >= 0) {
    log_sum = log_sum_exp();
    token.logprobs.present = true;
    token.logprobs.top = top_logprobs(params.num_logprobs, log_sum);
  }
  apply_penalties(params, counts);
  token.id = params.temperature == 0.0f ? greedy() : draw(params, position);
  if (token.logprobs.present) {
    const float raw = to_float(logits[static_cast<size_t>(token.id)]);
    token.logprobs.drawn = static_cast<float>(raw - log_sum);
  }
  return token;
}

Status unsound_logits() {
  return data_loss(
      "the model's logits are not finite: its weights are damaged or its activations overflow "
      "(`sluice info --verify` reads every weight)");
}

Status Sampler::widen(std::span<const bf16> logits) {
  SLUICE_CHECK_GE(static_cast<int64_t>(logits.size()), static_cast<int64_t>(num_defined_));
  bool is_sound = true;
  for (size_t i = 0; i < logits_.size(); ++i) {
    logits_[i] = to_float(logits[i]);
    is_sound &= logits_[i] < std::numeric_limits<float>::infinity();  // false for NaN too
  }
  return is_sound ? Status() : unsound_logits();
}

double Sampler::log_sum_exp() const {
  const double max = *std::max_element(logits_.begin(), logits_.end());
  double sum = 0.0;
  for (const float logit : logits_) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

std::vector<TokenLogprob> Sampler::top_logprobs(int32_t count, double log_sum) const {
  std::vector<int32_t> ids(logits_.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto wanted = std::min(static_cast<size_t>(count), ids.size());
  const auto more_likely = [this](int32_t a, int32_t b) {
    const float la = logits_[static_cast<size_t>(a)];
    const float lb = logits_[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(wanted), ids.end(),
                    more_likely);
  std::vector<TokenLogprob> top(wanted);
  for (size_t i = 0; i < wanted; ++i) {
    top[i] = {ids[i], static_cast<float>(logits_[static_cast<size_t>(ids[i])] - log_sum)};
  }
  return top;
}

void Sampler::apply_penalties(const SamplingParams& params, const TokenCounts& counts) {
  if (params.repetition_penalty == 1.0f && params.presence_penalty == 0.0f &&
      params.frequency_penalty == 0.0f) {
    return;
  }
  for (const auto& [id, count] : counts.counts()) {
    if (id >= num_defined_) continue;
    float& logit = logits_[static_cast<size_t>(id)];
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.generated == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count.generated);
    logit -= params.presence_penalty;
  }
}

int32_t Sampler::greedy() const {
  return static_cast<int32_t>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
}

void Sampler::keep_top_k(int32_t top_k) {
  if (top_k == 0 || static_cast<size_t>(top_k) >= candidates_.size()) return;
  std::vector<Candidate>& all = candidates_;
  // A copy of the logits alone is selected from, so that candidates stay in id order.
  selected_.clear();
  for (const Candidate& c : all) selected_.push_back(c.logit);
  const auto kth_place = selected_.begin() + (top_k - 1);
  std::nth_element(selected_.begin(), kth_place, selected_.end(), std::greater<>());
  const float kth = *kth_place;
  std::erase_if(all, [kth](const Candidate& c) { return c.logit < kth; });
}

void Sampler::keep_top_p(float top_p) {
  if (top_p >= 1.0f) return;
  // Ascending and stable: among ties the lower id goes first, so the highest id survives (model-spec section 8).
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  const double max = candidates_.back().logit;
  Mass total = 0;
  for (const Candidate& c : candidates_) total += mass_of(std::exp(c.logit - max));
  const double limit = (1.0 - static_cast<double>(top_p)) * to_double(total);
  Mass below = 0;
  size_t num_dropped = 0;
  while (num_dropped + 1 < candidates_.size()) {
    below += mass_of(std::exp(candidates_[num_dropped].logit - max));
    if (to_double(below) > limit) break;
    ++num_dropped;
  }
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(num_dropped));
}

void Sampler::keep_min_p(float min_p) {
  if (min_p <= 0.0f) return;
  float max = candidates_.front().logit;
  for (const Candidate& c : candidates_) max = std::max(max, c.logit);
  const double floor = std::log(static_cast<double>(min_p)) + static_cast<double>(max);
  std::erase_if(candidates_, [floor](const Candidate& c) { return c.logit < floor; });
}

int32_t Sampler::draw(const SamplingParams& params, int64_t position) {
  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i) {
    candidates_.push_back({logits_[i] / params.temperature, static_cast<int32_t>(i)});
  }
  keep_top_k(params.top_k);
  keep_top_p(params.top_p);
  keep_min_p(params.min_p);
  Candidate best = candidates_.front();
  double best_score = 0.0;
  bool first = true;
  for (const Candidate& c : candidates_) {
    const double score = static_cast<double>(c.logit) + gumbel_noise(params.seed, position, c.id);
    if (first || score > best_score || (score == best_score && c.id < best.id)) {
      best = c;
      best_score = score;
      first = false;
    }
  }
  return best.id;
}

}  // namespace sluice
