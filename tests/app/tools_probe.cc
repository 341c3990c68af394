// Runs the built-in tools from a script: tools_probe ROOT reads lines of {"name", "arguments"} and
// answers each with the result as a JSON string. For tests/python/tools_diff.py.

#include <cstdio>
#include <iostream>

#include "apps/tools/builtin_tools.h"

int main(int argc, char** argv) {
  using namespace sluice;
  if (argc != 2) return 2;
  Result<ConfinedDir> dir = ConfinedDir::open(argv[1]);
  if (!dir.ok()) return 2;
  const ToolSet tools =
      builtin_tools(std::make_shared<const ConfinedDir>(std::move(dir).value()), true);
  for (std::string line; std::getline(std::cin, line);) {
    const Result<JsonValue> call = parse_json(line);
    if (!call.ok()) return 2;
    const ToolResult result = tools.run(call->find("name")->text(), *call->find("arguments"));
    std::printf("%s\n", json_quote(result.text).c_str());
  }
}
