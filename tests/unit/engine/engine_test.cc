#include "engine/engine.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "model/synth.h"

namespace sluice {
namespace {

/// A tiny synthetic checkpoint, written once for all tests here. It has no tokenizer: ids only.
const Path& tiny_model() {
  static const Path dir = [] {
    const Path path = Path(testing::TempDir()) / "sluice_engine_test_model";
    SynthSpec spec = *synth_spec("tiny", WeightFormat::kFp8Block128, 1);
    spec.overwrite = true;
    SLUICE_CHECK(write_synthetic_checkpoint(spec, path, nullptr).ok());
    return path;
  }();
  return dir;
}

EngineOptions ids_only() {
  EngineOptions options;
  options.model_dir = tiny_model();
  options.ids_only = true;
  options.num_threads = 2;
  options.context_max = 512;
  return options;
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options = ids_only()) {
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  SLUICE_CHECK(engine.ok());
  return *std::move(engine);
}

const auto kIgnoreTokens = [](const TokenEvent&) { return true; };

GenerateParams tokens(int64_t count) {
  GenerateParams params;
  params.max_tokens = count;
  params.ignore_model_stops = true;
  return params;
}

std::vector<int32_t> ids_of(const Session& session) {
  return {session.ids().begin(), session.ids().end()};
}

TEST(Engine, GreedyRunsRepeatAndCutsDoNotMatter) {
  const auto engine = open_engine();
  const std::vector<int32_t> prompt = {5, 9, 2, 77, 31, 8, 4, 4, 19};
  std::vector<int32_t> whole;
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{4}, size_t{8}}) {
    const auto session = *engine->create_session();
    ASSERT_TRUE(session->append(std::span(prompt).first(cut)).ok());
    ASSERT_TRUE(session->append(std::span(prompt).subspan(cut)).ok());
    const GenerateResult result = *session->generate(tokens(20), kIgnoreTokens);
    EXPECT_EQ(result.reason, FinishReason::kLength);
    EXPECT_EQ(result.num_generated_tokens, 20);
    EXPECT_EQ(result.num_prompt_tokens, 9);
    EXPECT_EQ(session->num_committed(),
              9 + 19);  // the last token's state follows with the next call
    if (whole.empty()) whole = ids_of(*session);
    EXPECT_EQ(ids_of(*session), whole);
    engine->check_integrity();
  }
}

TEST(Engine, GoingOnEqualsOneLongCall) {
  const auto engine = open_engine();
  const std::vector<int32_t> prompt = {1, 2, 3};
  std::vector<int32_t> expected;
  {
    const auto session = *engine->create_session();
    ASSERT_TRUE(session->append(prompt).ok());
    ASSERT_TRUE(session->generate(tokens(12), kIgnoreTokens).ok());
    expected = ids_of(*session);
  }
  const auto session = *engine->create_session();
  ASSERT_TRUE(session->append(prompt).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(session->generate(tokens(3), kIgnoreTokens).ok());
  EXPECT_EQ(ids_of(*session), expected);
}

TEST(Engine, SampledRunsRepeatWithTheirSeedOnly) {
  const auto engine = open_engine();
  const std::vector<int32_t> prompt = {10, 20, 30};
  const auto play = [&](uint64_t seed) {
    const auto session = *engine->create_session();
    SLUICE_CHECK(session->append(prompt).ok());
    GenerateParams params = tokens(24);
    params.sampling.temperature = 1.5f;
    params.sampling.seed = seed;
    SLUICE_CHECK(session->generate(params, kIgnoreTokens).ok());
    return ids_of(*session);
  };
  EXPECT_EQ(play(7), play(7));
  EXPECT_NE(play(7), play(8));
}

TEST(Engine, StopIdsAndCancelEndATurn) {
  const auto engine = open_engine();
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
  const auto first = *engine->create_session();
  ASSERT_TRUE(first->append(prompt).ok());
  ASSERT_TRUE(first->generate(tokens(6), kIgnoreTokens).ok());
  const int32_t third = first->ids()[prompt.size() + 2];
  EngineOptions options = ids_only();
  options.num_sessions_max = 2;
  const auto other = open_engine(options);
  const auto session = *other->create_session();
  ASSERT_TRUE(session->append(prompt).ok());
  GenerateParams params = tokens(0);
  params.stop_ids = {third};
  GenerateResult result = *session->generate(params, kIgnoreTokens);
  EXPECT_EQ(result.reason, FinishReason::kStopToken);
  EXPECT_EQ(session->ids().back(), third);
  EXPECT_LE(result.num_generated_tokens, 3);
  result = *session->generate(tokens(0), [](const TokenEvent&) { return false; });
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_EQ(result.num_generated_tokens, 1);
}

TEST(Engine, ALongPromptCanBeCancelledAndGoesOnLater) {
  EngineOptions options = ids_only();
  options.prefill_rows_max = 64;
  options.num_sessions_max = 2;
  const auto engine = open_engine(options);
  const std::vector<int32_t> prompt(300, 7);
  const auto session = *engine->create_session();
  ASSERT_TRUE(session->append(prompt).ok());
  GenerateParams params = tokens(5);
  int num_asked = 0;
  params.cancelled = [&] { return ++num_asked == 2; };
  const GenerateResult result = *session->generate(params, kIgnoreTokens);
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_EQ(result.num_generated_tokens, 0);
  EXPECT_EQ(session->num_committed(), 128);
  ASSERT_TRUE(session->generate(tokens(5), kIgnoreTokens).ok());
  const auto whole = *engine->create_session();
  ASSERT_TRUE(whole->append(prompt).ok());
  ASSERT_TRUE(whole->generate(tokens(5), kIgnoreTokens).ok());
  EXPECT_EQ(ids_of(*session), ids_of(*whole));
}

TEST(Engine, TheContextFillsToTheLastTokenAndHarmsNothing) {
  EngineOptions options = ids_only();
  options.context_max = 70;
  const auto engine = open_engine(options);
  const auto session = *engine->create_session();
  const std::vector<int32_t> prompt(60, 9);
  ASSERT_TRUE(session->append(prompt).ok());
  const GenerateResult result = *session->generate(tokens(0), kIgnoreTokens);
  EXPECT_EQ(result.reason, FinishReason::kContextFull);
  EXPECT_EQ(session->ids().size(), 71u);
  const Result<GenerateResult> again = session->generate(tokens(0), kIgnoreTokens);
  EXPECT_EQ(again.status().code(), StatusCode::kResourceExhausted);
  const std::vector<int32_t> too_long(71, 9);
  const Status status = session->append(too_long);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("70"), std::string::npos);
  EXPECT_EQ(session->ids().size(), 71u);
  engine->check_integrity();
}

TEST(Engine, SessionsAreBoundedAndComeBack) {
  const auto engine = open_engine();
  auto session = *engine->create_session();
  const auto refused = engine->create_session();
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("num_sessions_max"), std::string::npos);
  session.reset();
  EXPECT_TRUE(engine->create_session().ok());
}

TEST(Engine, TwoSessionsTakeTurnsWithoutTouchingEachOther) {
  EngineOptions options = ids_only();
  options.num_sessions_max = 2;
  const auto engine = open_engine(options);
  const std::vector<int32_t> a = {1, 2, 3, 4};
  const std::vector<int32_t> b = {40, 30, 20};
  const auto alone = [&](const std::vector<int32_t>& prompt) {
    const auto session = *engine->create_session();
    SLUICE_CHECK(session->append(prompt).ok());
    SLUICE_CHECK(session->generate(tokens(8), kIgnoreTokens).ok());
    return ids_of(*session);
  };
  const auto expected_a = alone(a);
  const auto expected_b = alone(b);
  const auto sa = *engine->create_session();
  const auto sb = *engine->create_session();
  ASSERT_TRUE(sa->append(a).ok());
  ASSERT_TRUE(sb->append(b).ok());
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(sa->generate(tokens(2), kIgnoreTokens).ok());
    ASSERT_TRUE(sb->generate(tokens(2), kIgnoreTokens).ok());
  }
  EXPECT_EQ(ids_of(*sa), expected_a);
  EXPECT_EQ(ids_of(*sb), expected_b);
  engine->check_integrity();
}

TEST(Engine, BadInputIsRefusedAndHarmsNothing) {
  const auto engine = open_engine();
  const auto session = *engine->create_session();
  EXPECT_FALSE(session->generate(tokens(1), kIgnoreTokens).ok());
  const std::vector<int32_t> bad[] = {{-1}, {1 << 30}, {1, 2, -7}};
  for (const auto& ids : bad) EXPECT_EQ(session->append(ids).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->ids().empty());
  const std::vector<int32_t> good = {1};
  ASSERT_TRUE(session->append(good).ok());
  GenerateParams params = tokens(1);
  params.sampling.top_p = 2.0f;
  EXPECT_EQ(session->generate(params, kIgnoreTokens).status().code(), StatusCode::kInvalidArgument);
  params = tokens(1);
  params.stop_strings = {"x"};
  EXPECT_EQ(session->generate(params, kIgnoreTokens).status().code(), StatusCode::kInvalidArgument);
  params = tokens(-1);
  EXPECT_EQ(session->generate(params, kIgnoreTokens).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(session->generate(tokens(1), kIgnoreTokens).ok());
}

TEST(Engine, LogprobsAndEventsArriveInOrder) {
  const auto engine = open_engine();
  const auto session = *engine->create_session();
  const std::vector<int32_t> prompt = {1, 2};
  ASSERT_TRUE(session->append(prompt).ok());
  GenerateParams params = tokens(5);
  params.sampling.num_logprobs = 3;
  std::vector<int32_t> seen;
  ASSERT_TRUE(session
                  ->generate(params,
                             [&](const TokenEvent& event) {
                               seen.push_back(event.id);
                               EXPECT_EQ(session->ids().back(), event.id);
                               EXPECT_EQ(event.logprobs.top.size(), 3u);
                               EXPECT_EQ(event.logprobs.top[0].id, event.id);  // greedy
                               EXPECT_LE(event.logprobs.drawn, 0.0f);
                               return true;
                             })
                  .ok());
  EXPECT_EQ(seen, std::vector<int32_t>(session->ids().begin() + 2, session->ids().end()));
}

TEST(Engine, ATurnInsideATurnIsRefusedAndHarmsNeither) {
  EngineOptions options = ids_only();
  options.num_sessions_max = 2;
  const auto engine = open_engine(options);
  const auto outer = *engine->create_session();
  const auto inner = *engine->create_session();
  const std::vector<int32_t> prompt = {1, 2};
  ASSERT_TRUE(outer->append(prompt).ok());
  ASSERT_TRUE(inner->append(prompt).ok());
  const auto always = [](const TokenEvent&) { return true; };
  int num_refused = 0;
  ASSERT_TRUE(outer
                  ->generate(tokens(5),
                             [&](const TokenEvent&) {
                               const auto result = inner->generate(tokens(5), always);
                               num_refused += !result.ok();
                               return true;
                             })
                  .ok());
  EXPECT_EQ(num_refused, 5);
  ASSERT_TRUE(inner->generate(tokens(5), always).ok());
  EXPECT_TRUE(std::ranges::equal(inner->ids(), outer->ids()));
}

TEST(Engine, BadOptionsNameThemselves) {
  const auto refused = [](auto&& change, std::string_view word) {
    EngineOptions options = ids_only();
    change(options);
    const auto engine = Engine::open(options);
    EXPECT_FALSE(engine.ok()) << word;
    if (!engine.ok()) {
      EXPECT_NE(engine.status().message().find(word), std::string::npos)
          << engine.status().message();
    }
  };
  refused([](auto& o) { o.device = "cuda"; }, "cuda");
  refused([](auto& o) { o.device = "tpu"; }, "tpu");
  refused([](auto& o) { o.isa = "sse9"; }, "sse9");
  refused([](auto& o) { o.prefill_math = "fp4"; }, "expected exact or fp8");
  refused([](auto& o) { o.prefill_math = "fp8"; }, "needs a GPU");
  refused([](auto& o) { o.context_max = int64_t{1} << 40; }, "context");
  refused([](auto& o) { o.num_sessions_max = 0; }, "num_sessions_max");
  refused([](auto& o) { o.prefill_rows_max = 100; }, "prefill_rows_max");
  refused([](auto& o) { o.num_threads = -1; }, "num_threads");
  refused([](auto& o) { o.model_dir = "/nonexistent"; }, "/nonexistent");
  refused([](auto& o) { o.ids_only = false; }, "tokenizer");
}

}  // namespace
}  // namespace sluice
