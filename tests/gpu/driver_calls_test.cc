// A decode loop of 1,000 tokens asks nothing of the driver but to launch one graph a token.
#include "tests/gpu/driver_calls.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

#include "engine/engine.h"
#include "ops/cuda/cuda_ops.h"

namespace sluice {
namespace {

constexpr int64_t kTokens = 1000;

struct Counter {
  decltype(&sluice_driver_calls_reset) reset;
  decltype(&sluice_driver_calls_list) list;
};

Counter find_counter() {
  return {
      reinterpret_cast<decltype(Counter::reset)>(dlsym(RTLD_DEFAULT, "sluice_driver_calls_reset")),
      reinterpret_cast<decltype(Counter::list)>(dlsym(RTLD_DEFAULT, "sluice_driver_calls_list"))};
}

std::map<std::string, int64_t> calls_of(const Counter& counter) {
  std::string text(1 << 16, '\0');
  counter.list(text.data(), text.size());
  std::istringstream lines(text.c_str());
  std::map<std::string, int64_t> calls;
  std::string name;
  int64_t count = 0;
  while (lines >> name >> count) calls[name] = count;
  return calls;
}

/// The counter sees a copy and a wait.
TEST(DriverCalls, OthersAreSeen) {
  const Counter counter = find_counter();
  ASSERT_NE(counter.reset, nullptr) << "run this with LD_PRELOAD=libsluice_driver_calls.so";
  const MemoryTable& memory = *(*cuda_ops())->memory;
  const Buffer buffer = memory.allocate(64, "probe", MemoryKind::kPrivate).value();
  counter.reset();
  memory.download(std::array<std::byte, 64>().data(), buffer.data(), buffer.size());
  const std::map<std::string, int64_t> calls = calls_of(counter);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(calls,
                               [&](const auto& call) { return call.first.starts_with(name); });
  };
  EXPECT_TRUE(has("cuMemcpy"));
  EXPECT_TRUE(has("cuStreamSynchronize"));
}

std::unique_ptr<Engine> open_engine(const std::string& isa) {
  EngineOptions options;
  options.model_dir = "models/tiny-agent";
  options.device = "cuda";
  options.isa = isa;
  options.context_max = 2 * kTokens;
  return Engine::open(options).value();
}

/// Calls of one turn behind a prompt of so many ids; with `from_first` the prompt's own and the first token's step are left out.
std::map<std::string, int64_t> calls_of_turn(const Counter& counter, Engine& engine,
                                             size_t num_prompt_ids, bool from_first,
                                             const GenerateParams& params) {
  const std::unique_ptr<Session> session = engine.create_session().value();
  EXPECT_TRUE(session->append(std::vector<int32_t>(num_prompt_ids, 77)).ok());
  int64_t num_tokens = 0;
  counter.reset();
  const Result<GenerateResult> result = session->generate(params, [&](const TokenEvent&) {
    if (num_tokens++ == 0 && from_first) counter.reset();
    return true;
  });
  std::map<std::string, int64_t> calls = calls_of(counter);
  EXPECT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(num_tokens, params.max_tokens);
  return calls;
}

GenerateParams tokens(int64_t max_tokens) {
  GenerateParams params;
  params.ignore_model_stops = true;
  params.max_tokens = max_tokens;
  return params;
}

/// `num_kernels_max`: of launches that are no graph's.
void expect_only_launches(const std::map<std::string, int64_t>& calls, int64_t num_graphs,
                          int64_t num_kernels_max) {
  int64_t num_launched = 0;
  int64_t num_kernels = 0;
  for (const auto& [name, count] : calls) {
    const bool is_graph = name.starts_with("cuGraphLaunch");
    const bool is_kernel = name.starts_with("cuLaunchKernel");
    EXPECT_TRUE(is_graph || is_kernel) << name << " was called " << count << " times";
    if (is_graph) num_launched += count;
    if (is_kernel) num_kernels += count;
  }
  EXPECT_EQ(num_launched, num_graphs);
  EXPECT_LE(num_kernels, num_kernels_max);
}

TEST(DriverCalls, ADecodeLoopOnlyLaunchesGraphs) {
  const Counter counter = find_counter();
  ASSERT_NE(counter.reset, nullptr) << "run this with LD_PRELOAD=libsluice_driver_calls.so";
  const std::unique_ptr<Engine> engine = open_engine("");
  EXPECT_GT(calls_of(counter).size(), 10u) << "the counter sees too little to be trusted";
  // The prompt draws the first token, whose step is under way when it is published; nothing is run behind the last. Where prompts
  // have their chunk form, a checkpoint of recurrent and conv state is copied at every 64th position.
  constexpr int64_t kCopies = 2 * (kTokens / kGdnChunk + 1);
  expect_only_launches(calls_of_turn(counter, *engine, 5, true, tokens(kTokens)), kTokens - 2,
                       kCopies);
}

/// The first step of a kind is like all others: its graph is there. Here prompts run as decode's steps, and are recorded too.
TEST(DriverCalls, NoStepIsRecordedOnTheWay) {
  const Counter counter = find_counter();
  ASSERT_NE(counter.reset, nullptr) << "run this with LD_PRELOAD=libsluice_driver_calls.so";
  const std::unique_ptr<Engine> engine = open_engine("portable");
  constexpr int64_t kFewTokens = 3;
  GenerateParams on_host = tokens(kFewTokens);
  on_host.sampling.frequency_penalty = 0.5f;  // the host draws
  for (const size_t num_ids : {1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64}) {
    for (const GenerateParams& params : {tokens(kFewTokens), on_host}) {
      expect_only_launches(calls_of_turn(counter, *engine, num_ids, false, params), kFewTokens, 0);
    }
  }
}

/// Nor with prompts of another form: nothing is allocated and no graph is made behind the load.
TEST(DriverCalls, NothingIsMadeBehindTheLoad) {
  const Counter counter = find_counter();
  ASSERT_NE(counter.reset, nullptr) << "run this with LD_PRELOAD=libsluice_driver_calls.so";
  const std::unique_ptr<Engine> engine = open_engine("");
  for (const size_t num_ids : {1, 64, 65, 300}) {
    for (const auto& [name, count] : calls_of_turn(counter, *engine, num_ids, false, tokens(70))) {
      EXPECT_FALSE(name.starts_with("cuMem") || name.starts_with("cuGraphInstantiate") ||
                   name.starts_with("cuStreamBeginCapture"))
          << name << " was called " << count << " times";
    }
  }
}

}  // namespace
}  // namespace sluice
