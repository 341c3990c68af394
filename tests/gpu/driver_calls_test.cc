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

constexpr int64_t kWarmTokens = 20;
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

TEST(DriverCalls, ADecodeLoopOnlyLaunchesGraphs) {
  const Counter counter = find_counter();
  ASSERT_NE(counter.reset, nullptr) << "run this with LD_PRELOAD=libsluice_driver_calls.so";
  EngineOptions options;
  options.model_dir = "models/tiny-agent";
  options.device = "cuda";
  options.context_max = 2 * kTokens;
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const std::map<std::string, int64_t> at_load = calls_of(counter);
  EXPECT_GT(at_load.size(), 10u) << "the counter sees too little to be trusted";
  std::unique_ptr<Session> session = (*engine)->create_session().value();
  ASSERT_TRUE(session->append(std::vector<int32_t>{1, 5, 77, 300, 12}).ok());
  GenerateParams params;
  params.ignore_model_stops = true;
  params.max_tokens = kWarmTokens + kTokens;
  std::map<std::string, int64_t> calls;
  int64_t num_tokens = 0;
  const auto on_token = [&](const TokenEvent&) {
    ++num_tokens;
    if (num_tokens == kWarmTokens) counter.reset();
    if (num_tokens == kWarmTokens + kTokens) calls = calls_of(counter);
    return true;
  };
  const Result<GenerateResult> result = session->generate(params, on_token);
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(num_tokens, kWarmTokens + kTokens);
  for (const auto& [name, count] : calls) {
    const bool is_launch = name.starts_with("cuGraphLaunch");
    EXPECT_TRUE(is_launch) << name << " was called " << count << " times";
    if (is_launch) {
      EXPECT_EQ(count, kTokens) << name;
    }
  }
  EXPECT_EQ(calls.size(), 1u);
}

}  // namespace
}  // namespace sluice
