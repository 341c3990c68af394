#pragma once
// The user's own tools: schemas from a file, and one command that runs every call.

#include <functional>
#include <string>

#include "apps/tools/tool_set.h"
#include "base/file.h"

namespace sluice {

struct CommandLimits {
  double timeout_s = 30.0;
  size_t output_bytes_max = size_t{64} << 10;
  /// Asked now and then; true ends the command. May be empty.
  std::function<bool()> cancelled;
};

/// Runs `/bin/sh -c command` with `input` on its standard input and returns its standard output,
/// one trailing newline removed. It gets a process group of its own, which is killed when the time
/// or the size limit is passed, when `cancelled` says so, and when the command has ended but left
/// children behind (which is no error). A Status for the other three, and for an exit status other than 0 (with what it
/// wrote). Standard error is passed through.
Result<std::string> run_command(const std::string& command, std::string_view input,
                                const CommandLimits& limits);

/// `schema_file`: a JSON array as OpenAI's `tools`. A call runs `command` with
/// {"name": NAME, "arguments": {...}} on its standard input.
Result<ToolSet> command_tools(const Path& schema_file, const std::string& command,
                              const CommandLimits& limits);

}  // namespace sluice
