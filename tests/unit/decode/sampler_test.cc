#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace sluice {
namespace {

std::vector<bf16> row(std::initializer_list<float> logits) {
  std::vector<bf16> out;
  for (const float x : logits) out.push_back(to_bf16(x));
  return out;
}

SamplingParams hot(float temperature = 1.0f) {
  SamplingParams params;
  params.temperature = temperature;
  return params;
}

/// Ids that `num_draws` positions give.
std::map<int32_t, int> histogram(const std::vector<bf16>& logits, const SamplingParams& params,
                                 int num_draws = 4000) {
  Sampler sampler(static_cast<int64_t>(logits.size()), static_cast<int32_t>(logits.size()));
  std::map<int32_t, int> counts;
  for (int i = 0; i < num_draws; ++i)
    ++counts[sampler.sample(logits, params, TokenCounts(), i)->id];
  return counts;
}

std::vector<int32_t> drawn_ids(const std::vector<bf16>& logits, const SamplingParams& params) {
  std::vector<int32_t> ids;
  for (const auto& [id, count] : histogram(logits, params)) ids.push_back(id);
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Sampler, GreedyTakesTheLowestIdAmongTies) {
  Sampler sampler(5, 5);
  EXPECT_EQ(sampler.sample(row({0, 3, 1, 3, 2}), SamplingParams(), TokenCounts(), 0)->id, 1);
}

TEST(Sampler, PaddedIdsAreNeverDrawn) {
  Sampler sampler(5, 3);
  EXPECT_EQ(sampler.sample(row({0, 1, 0, 99, 99}), SamplingParams(), TokenCounts(), 0)->id, 1);
  for (int i = 0; i < 500; ++i) {
    ASSERT_LT(sampler.sample(row({0, 1, 0, 99, 99}), hot(2.0f), TokenCounts(), i)->id, 3);
  }
}

TEST(Sampler, RefusesLogitsThatAreNotFinite) {
  Sampler sampler(3, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const auto& bad : {row({nan, 1, 2}), row({0, nan, 2}), row({0, 1, inf})}) {
    EXPECT_EQ(sampler.sample(bad, SamplingParams(), TokenCounts(), 0).status().code(),
              StatusCode::kDataLoss);
    EXPECT_EQ(sampler.sample(bad, hot(), TokenCounts(), 0).status().code(), StatusCode::kDataLoss);
  }
  EXPECT_EQ(sampler.sample(row({-inf, 1, 0}), SamplingParams(), TokenCounts(), 0)->id, 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const auto counts = histogram(row({0, 1, 2}), hot(), 30000);
  const double z = 1 + std::exp(1.0) + std::exp(2.0);
  for (int32_t id = 0; id < 3; ++id) EXPECT_NEAR(counts.at(id) / 30000.0, std::exp(id) / z, 0.012);
  const auto cold = histogram(row({0, 1, 2}), hot(0.5f), 30000);
  EXPECT_NEAR(cold.at(2) / 30000.0, std::exp(4.0) / (1 + std::exp(2.0) + std::exp(4.0)), 0.012);
}

TEST(Sampler, TopKKeepsTies) {
  SamplingParams params = hot(3.0f);
  params.top_k = 2;
  EXPECT_EQ(drawn_ids(row({0, 2, 1, 1, 0.5}), params), (Ids{1, 2, 3}));
  params.top_k = 1;
  EXPECT_EQ(drawn_ids(row({0, 2, 1, 1, 0.5}), params), (Ids{1}));
  params.top_k = 100;
  EXPECT_EQ(drawn_ids(row({0, 2, 1}), params).size(), 3u);
}

TEST(Sampler, TopPKeepsTheHighestIdAmongTies) {
  SamplingParams params = hot();
  params.top_p = 0.5f;
  // Four equal probabilities of 1/4: ascending, the prefix with cumulative probability <= 1/2 goes.
  EXPECT_EQ(drawn_ids(row({1, 1, 1, 1}), params), (Ids{2, 3}));
  params.top_p = 0.2f;
  EXPECT_EQ(drawn_ids(row({1, 1, 1, 1}), params), (Ids{3}));
  params.top_p = 1e-6f;
  EXPECT_EQ(drawn_ids(row({1, 5, 1}), params), (Ids{1}));
}

TEST(Sampler, TopPWorksOnWhatTopKLeft) {
  SamplingParams params = hot();
  params.top_k = 2;
  params.top_p = 0.6f;
  // Probabilities within the kept two: 0.5 and 0.5; alone in the full row neither would reach 0.6.
  EXPECT_EQ(drawn_ids(row({2, 2, 1.9f, 1.9f, 1.9f}), params), (Ids{0, 1}));
}

TEST(Sampler, MinPIsRelativeToTheMostLikely) {
  SamplingParams params = hot();
  params.min_p = 0.3f;
  EXPECT_EQ(drawn_ids(row({0, -1, -1.5f, -5}), params), (Ids{0, 1}));
}

TEST(Sampler, PenaltiesActBeforeTemperature) {
  TokenCounts counts;
  const std::vector<int32_t> prompt = {0};
  counts.add_prompt(prompt);
  counts.add_generated(1);
  counts.add_generated(1);
  Sampler sampler(3, 3);
  SamplingParams params;
  params.repetition_penalty = 2.0f;
  EXPECT_EQ(sampler.sample(row({3, 2, 1.75f}), params, counts, 0)->id, 2);    // 1.5, 1, 1.75
  EXPECT_EQ(sampler.sample(row({-1, -3, -1.5f}), params, counts, 0)->id, 2);  // -2, -6, -1.5
  params = SamplingParams();
  params.presence_penalty = 1.0f;  // the prompt does not count
  EXPECT_EQ(sampler.sample(row({1.5f, 2, 0}), params, counts, 0)->id, 0);
  params = SamplingParams();
  params.frequency_penalty = 0.5f;
  EXPECT_EQ(sampler.sample(row({1.5f, 2, 0}), params, counts, 0)->id, 0);
}

TEST(Sampler, LogprobsAreOfTheRawLogits) {
  Sampler sampler(4, 3);
  SamplingParams params;
  params.num_logprobs = 2;
  TokenCounts counts;
  counts.add_generated(1);
  params.presence_penalty = 2.0f;
  const SampledToken token = *sampler.sample(row({0, 1, 0, 50}), params, counts, 0);
  EXPECT_EQ(token.id, 0);
  const double log_sum = std::log(2 + std::exp(1.0));
  EXPECT_NEAR(token.logprobs.drawn, -log_sum, 1e-6);
  ASSERT_EQ(token.logprobs.top.size(), 2u);
  EXPECT_EQ(token.logprobs.top[0].id, 1);
  EXPECT_NEAR(token.logprobs.top[0].logprob, 1 - log_sum, 1e-6);
  EXPECT_EQ(token.logprobs.top[1].id, 0);
}

TEST(Sampler, ADrawIsAFunctionOfSeedAndPosition) {
  const auto logits = row({0, 0.5f, 1, 0.25f, 0.75f});
  SamplingParams params = hot();
  params.seed = 42;
  Sampler one(5, 5);
  Sampler two(5, 5);
  int differ = 0;
  for (int i = 0; i < 200; ++i) {
    const int32_t id = one.sample(logits, params, TokenCounts(), i)->id;
    ASSERT_TRUE(
        two.sample(row({9, 0, 0, 0, 0}), hot(), TokenCounts(), i).ok());  // a stranger in between
    ASSERT_EQ(two.sample(logits, params, TokenCounts(), i)->id, id);
    SamplingParams other = params;
    other.seed = 43;
    differ += one.sample(logits, other, TokenCounts(), i)->id != id ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

TEST(SamplingParams, RefusesWhatIsOutOfRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [](auto&& change) {
    SamplingParams params;
    change(params);
    return !params.validate().ok();
  };
  EXPECT_TRUE(SamplingParams().validate().ok());
  EXPECT_TRUE(refused([&](auto& p) { p.temperature = nan; }));
  EXPECT_TRUE(refused([](auto& p) { p.temperature = -1; }));
  EXPECT_TRUE(refused([](auto& p) { p.temperature = 1e-38f; }));
  EXPECT_TRUE(refused([](auto& p) { p.top_p = 0; }));
  EXPECT_TRUE(refused([](auto& p) { p.top_p = 1.5f; }));
  EXPECT_TRUE(refused([](auto& p) { p.min_p = -0.1f; }));
  EXPECT_TRUE(refused([](auto& p) { p.top_k = -1; }));
  EXPECT_TRUE(refused([](auto& p) { p.repetition_penalty = 0; }));
  EXPECT_TRUE(refused([&](auto& p) { p.repetition_penalty = nan; }));
  EXPECT_TRUE(refused([](auto& p) { p.presence_penalty = 3; }));
  EXPECT_TRUE(refused([](auto& p) { p.frequency_penalty = -3; }));
  EXPECT_TRUE(refused([](auto& p) { p.num_logprobs = 21; }));
}

}  // namespace
}  // namespace sluice
