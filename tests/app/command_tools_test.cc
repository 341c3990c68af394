#include "apps/tools/command_tools.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "tests/app/temp_tree.h"

namespace sluice {
namespace {

using testing::TempTree;

std::string run(const std::string& command, const std::string& input,
                const CommandLimits& limits = {}) {
  const Result<std::string> result = run_command(command, input, limits);
  return result.ok() ? *result : "error: " + result.status().message();
}

TEST(RunCommand, Results) {
  EXPECT_EQ(run("cat", "in\n"), "in");
  EXPECT_EQ(run("printf 'a\\n\\n'", ""), "a\n");
  EXPECT_EQ(run("true", "unread"), "");
  EXPECT_EQ(run("echo oops; exit 3", ""), "error: tool command ended with exit status 3: oops\n");
  EXPECT_EQ(run("kill -9 $$", ""), "error: tool command was killed by signal 9");
  EXPECT_TRUE(run("no-such-command-at-all 2>&1", "")
                  .starts_with("error: tool command ended with exit status 127"));
}

TEST(RunCommand, LargeInputAndOutputDoNotBlock) {
  const std::string input(1 << 20, 'x');
  CommandLimits limits;
  limits.output_bytes_max = input.size();
  EXPECT_EQ(run("cat", input, limits), input);
  EXPECT_EQ(run("head -c 3", input, limits), "xxx");
}

TEST(RunCommand, LimitsEndTheWholeGroup) {
  const TempTree tree;
  CommandLimits limits;
  limits.timeout_s = 0.2;
  const std::string pid_file = tree.path("pid").string();
  EXPECT_EQ(run("sleep 60 & echo $! > " + pid_file + "; wait", "", limits),
            "error: tool command ran over 0.2 s");
  const pid_t child = std::stoi(tree.content("pid"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  // Reparented, it stays a zombie until init reaps it: only "gone or dead" can be asked for.
  const auto is_alive = [&] {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name, state;
    return static_cast<bool>(stat >> pid >> name >> state) && state != "Z";
  };
  while (is_alive() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_alive());

  limits = CommandLimits();
  limits.output_bytes_max = 1000;
  EXPECT_EQ(run("yes", "", limits), "error: tool command wrote over 1000 bytes");
  limits.cancelled = [] { return true; };
  EXPECT_EQ(run("sleep 60", "", limits), "error: tool command was interrupted");
}

TEST(RunCommand, AChildLeftBehindDoesNotHoldTheResultUp) {
  EXPECT_EQ(run("sleep 60 & echo done", ""), "done");
}

TEST(CommandTools, PassTheCallOn) {
  const TempTree tree;
  tree.file("tools.json", R"([{"type": "function", "function": {"name": "weather", "parameters":
      {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])");
  const Result<ToolSet> tools = command_tools(tree.path("tools.json"), "cat", {});
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  ASSERT_EQ(tools->specs().size(), 1u);
  const Result<JsonValue> arguments = parse_json("{\"city\": \"K\xc3\xb6ln `id`\"}");
  ASSERT_TRUE(arguments.ok());
  EXPECT_EQ(tools->run("weather", *arguments).text,
            "{\"name\":\"weather\",\"arguments\":{\"city\":\"K\xc3\xb6ln `id`\"}}");
  EXPECT_EQ(tools->run("weather", *parse_json("{}")).text, "error: missing parameter: city");
  EXPECT_EQ(tools->run("tides", *parse_json("{}")).text, "error: unknown tool: tides");
}

TEST(CommandTools, BadFilesAreNamed) {
  const TempTree tree;
  tree.file("object.json", "{}");
  tree.file("broken.json", "[");
  tree.file("twice.json", R"([{"function": {"name": "a"}}, {"function": {"name": "a"}}])");
  for (const char* name : {"none.json", "object.json", "broken.json", "twice.json"}) {
    const Result<ToolSet> tools = command_tools(tree.path(name), "cat", {});
    ASSERT_FALSE(tools.ok()) << name;
    EXPECT_NE(tools.status().message().find(name), std::string::npos) << tools.status().message();
  }
}

}  // namespace
}  // namespace sluice
