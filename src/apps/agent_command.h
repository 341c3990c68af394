#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/model_flags.h"

namespace sluice {

/// `sluice agent`, and `sluice chat`, which is an agent without tools.
struct AgentCommandOptions {
  ModelFlags model;
  SamplingFlags sampling;
  bool with_tools = true;
  std::string dir = ".";
  bool allow_write = false;
  std::string tools_file;  // with tool_command: these tools take the place of the built-in ones
  std::string tool_command;
  double tool_timeout_s = 30.0;
  std::string system;
  std::vector<std::string> tasks;
  bool interactive = false;  // a prompt follows the tasks
  std::optional<bool> enable_thinking;
  int64_t max_tokens = 2048;
  int max_steps = 8;
};

/// 0: every task ended with an answer. 1: one did not, or an error. 2: there was nothing to do.
int run_agent(const AgentCommandOptions& options);

}  // namespace sluice
