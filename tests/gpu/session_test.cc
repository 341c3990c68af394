// A session on the GPU, whose steps are started ahead of the host: the same ids and the same state as one whose host reads every token first.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "engine/engine.h"

namespace sluice {
namespace {

constexpr int64_t kPromptIds = 5;
constexpr int64_t kTokens = 150;
/// Nothing the model writes: with it the host reads every token before it starts the next step.
const std::string kNever = "\x01no such text\x01";

std::unique_ptr<Engine> open_engine(const std::string& isa, int64_t context_max) {
  EngineOptions options;
  options.model_dir = "models/tiny-agent";
  options.device = "cuda";
  options.isa = isa;
  options.context_max = context_max;
  options.num_sessions_max = 3;
  return Engine::open(options).value();
}

GenerateParams params_of(SamplingParams sampling, bool is_ahead) {
  GenerateParams params;
  params.sampling = sampling;
  params.ignore_model_stops = true;
  params.max_tokens = kTokens;
  if (!is_ahead) params.stop_strings = {kNever};
  return params;
}

SamplingParams sampled(uint64_t seed) {
  SamplingParams sampling;
  sampling.temperature = 0.9f;
  sampling.top_k = 20;
  sampling.top_p = 0.95f;
  sampling.seed = seed;
  return sampling;
}

std::vector<int32_t> ids_of(const Session& session) {
  return {session.ids().begin(), session.ids().end()};
}

/// Generates; `cancel_at`: of how many tokens the last one cancels. Checks on the way what every event may rely on.
GenerateResult run(Session& session, const GenerateParams& params, int64_t cancel_at) {
  int64_t num_tokens = 0;
  const Result<GenerateResult> result = session.generate(params, [&](const TokenEvent& event) {
    EXPECT_EQ(event.id, session.ids().back());
    EXPECT_EQ(session.num_committed() + 1, static_cast<int64_t>(session.ids().size()));
    return ++num_tokens != cancel_at;
  });
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.value();
}
GenerateResult run(Session& session, const GenerateParams& params) {
  return run(session, params, -1);
}

std::unique_ptr<Session> begin_session(Engine& engine) {
  std::unique_ptr<Session> session = engine.create_session().value();
  EXPECT_TRUE(session->append(std::vector<int32_t>{1, 5, 77, 300, 12}).ok());
  EXPECT_EQ(session->ids().size(), static_cast<size_t>(kPromptIds));
  return session;
}

/// A further turn: what it draws hangs on all of the state.
void append_turn(Session& session) {
  EXPECT_TRUE(session.append(std::vector<int32_t>{9, 4, 21}).ok());
}

const std::string kPortable = "portable";

/// Backend, and seed of the sampling: 0 is greedy.
class GpuSession : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  const std::string& isa() const { return std::get<0>(GetParam()); }
  SamplingParams sampling() const {
    const int seed = std::get<1>(GetParam());
    return seed == 0 ? SamplingParams() : sampled(static_cast<uint64_t>(seed));
  }
};

TEST_P(GpuSession, DrawsTheSameAheadOfTheHost) {
  const auto engine = open_engine(isa(), 1024);
  std::vector<int32_t> ids[2];
  for (const bool is_ahead : {false, true}) {
    const auto session = begin_session(*engine);
    for (int turn = 0; turn < 3; ++turn) {
      const GenerateResult result = run(*session, params_of(sampling(), is_ahead));
      EXPECT_EQ(result.reason, FinishReason::kLength);
      EXPECT_EQ(result.num_generated_tokens, kTokens);
      EXPECT_EQ(session->num_committed() + 1, static_cast<int64_t>(session->ids().size()));
      if (turn == 0) append_turn(*session);
    }
    ids[is_ahead] = ids_of(*session);
  }
  EXPECT_EQ(ids[0], ids[1]);
}

TEST_P(GpuSession, StopsBehindTheSameTokenWithTheSameState) {
  const auto engine = open_engine(isa(), 1024);
  const auto model = begin_session(*engine);
  run(*model, params_of(sampling(), false));
  const std::vector<int32_t> drawn = ids_of(*model);
  for (const size_t place : {size_t{5}, size_t{6}, size_t{30}}) {
    std::vector<int32_t> ids[2];
    for (const bool is_ahead : {false, true}) {
      const auto session = begin_session(*engine);
      GenerateParams params = params_of(sampling(), is_ahead);
      params.stop_ids = {drawn[place]};
      const GenerateResult result = run(*session, params);
      EXPECT_EQ(result.reason, FinishReason::kStopToken);
      EXPECT_EQ(session->ids().back(), drawn[place]);
      EXPECT_EQ(session->num_committed() + 1, static_cast<int64_t>(session->ids().size()));
      append_turn(*session);
      run(*session, params_of(sampling(), is_ahead));
      ids[is_ahead] = ids_of(*session);
    }
    EXPECT_EQ(ids[0], ids[1]) << place;
  }
}

/// Cancels at a token, lets another session run, and goes on.
std::vector<int32_t> go_on_behind(Engine& engine, const GenerateParams& params, int64_t cancel_at,
                                  bool appends) {
  const auto session = begin_session(engine);
  EXPECT_EQ(run(*session, params, cancel_at).reason, FinishReason::kCancelled);
  EXPECT_EQ(static_cast<int64_t>(session->ids().size()), kPromptIds + cancel_at);
  engine.check_integrity();
  const auto other = begin_session(engine);
  run(*other, params_of(sampled(77), true));
  if (appends) append_turn(*session);
  GenerateParams rest = params;
  if (!appends) rest.max_tokens -= cancel_at;
  run(*session, rest);
  return ids_of(*session);
}

TEST_P(GpuSession, GoesOnBehindACancelledToken) {
  const auto engine = open_engine(isa(), 1024);
  const auto whole = begin_session(*engine);
  run(*whole, params_of(sampling(), true));
  for (const int64_t cancel_at : {1, 2, 40, 59}) {
    EXPECT_EQ(go_on_behind(*engine, params_of(sampling(), true), cancel_at, false), ids_of(*whole))
        << cancel_at;
  }
}

/// Where a token has the same bits in a prompt as in decode, it does not matter either whether the state has followed the last token.
TEST_P(GpuSession, ACancelledTurnLeavesWhatOneInTurnLeaves) {
  if (isa() != kPortable) GTEST_SKIP() << "prompts have sums of their own there";
  const auto engine = open_engine(isa(), 1024);
  for (const int64_t cancel_at : {1, 2, 40, 59}) {
    for (const bool appends : {false, true}) {
      EXPECT_EQ(go_on_behind(*engine, params_of(sampling(), true), cancel_at, appends),
                go_on_behind(*engine, params_of(sampling(), false), cancel_at, appends))
          << cancel_at << (appends ? ", appended" : "");
    }
  }
}

TEST_P(GpuSession, FillsTheContextToTheSameToken) {
  const auto engine = open_engine(isa(), 256);
  std::vector<int32_t> ids[2];
  for (const bool is_ahead : {false, true}) {
    const auto session = begin_session(*engine);
    GenerateParams params = params_of(sampling(), is_ahead);
    params.max_tokens = 0;
    EXPECT_EQ(run(*session, params).reason, FinishReason::kContextFull);
    ids[is_ahead] = ids_of(*session);
  }
  EXPECT_EQ(ids[0], ids[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, GpuSession,
                         ::testing::Combine(::testing::Values(std::string(), kPortable),
                                            ::testing::Values(0, 1)));

TEST(GpuSessionRules, ACancelledTurnWantsItsSampling) {
  const auto engine = open_engine("", 512);
  const auto session = begin_session(*engine);
  run(*session, params_of(sampled(1), true), 3);
  const std::vector<int32_t> ids = ids_of(*session);
  const auto ignore = [](const TokenEvent&) { return true; };
  EXPECT_EQ(session->generate(params_of(sampled(2), true), ignore).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(ids_of(*session), ids);
  EXPECT_TRUE(session->generate(params_of(sampled(1), true), ignore).ok());
}

/// Log probabilities come from the GPU's sampler, or from the host's where there are penalties: here one that changes nothing.
TEST(GpuSessionRules, LogProbabilitiesAreTheHosts) {
  const auto engine = open_engine("", 512);
  std::vector<TokenLogprobs> told[2];
  for (const bool is_on_host : {false, true}) {
    const auto session = begin_session(*engine);
    GenerateParams params = params_of(SamplingParams(), true);
    params.sampling.num_logprobs = 5;
    if (is_on_host) params.sampling.frequency_penalty = 1e-30f;
    const auto keep = [&](const TokenEvent& event) {
      told[is_on_host].push_back(event.logprobs);
      return true;
    };
    EXPECT_TRUE(session->generate(params, keep).ok());
  }
  ASSERT_EQ(told[0].size(), static_cast<size_t>(kTokens));
  ASSERT_EQ(told[1].size(), told[0].size());
  for (size_t i = 0; i < told[0].size(); ++i) {
    EXPECT_TRUE(told[0][i].present);
    EXPECT_FLOAT_EQ(told[0][i].drawn, told[1][i].drawn);
    ASSERT_EQ(told[0][i].top.size(), 5u);
    for (size_t t = 0; t < 5; ++t) {
      EXPECT_EQ(told[0][i].top[t].id, told[1][i].top[t].id);
      EXPECT_FLOAT_EQ(told[0][i].top[t].logprob, told[1][i].top[t].logprob);
    }
  }
}

/// Tokens a second ahead of the host and in turn, for the log.
TEST(GpuSessionRules, Speed) {
  const auto engine = open_engine("", 4096);
  for (const bool is_ahead : {false, true, false, true}) {
    const auto session = begin_session(*engine);
    GenerateParams params = params_of(SamplingParams(), is_ahead);
    params.max_tokens = 1500;
    const GenerateResult result = run(*session, params);
    std::printf("%s: %.1f tokens/s\n", is_ahead ? "ahead" : "in turn",
                static_cast<double>(result.num_generated_tokens - 1) / result.decode_s);
  }
}

}  // namespace
}  // namespace sluice
