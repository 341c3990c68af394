#include "apps/tools/command_tools.h"

#include "chat/openai.h"

namespace sluice {
namespace {

constexpr size_t kSchemaBytesMax = size_t{1} << 20;

Result<std::vector<chat::ToolSpec>> load_specs(const Path& schema_file) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, read_file(schema_file, kSchemaBytesMax));
  const Result<JsonValue> json = parse_json(text);
  if (!json.ok()) return json.status().with_context(schema_file.string());
  if (!json->is_array()) {
    return invalid_argument("{}: expected a JSON array of tools", schema_file.string());
  }
  Result<std::vector<chat::ToolSpec>> specs = chat::tools_from_json(*json);
  if (!specs.ok()) return specs.status().with_context(schema_file.string());
  return specs;
}

}  // namespace

Result<ToolSet> command_tools(const Path& schema_file, const std::string& command,
                              const CommandLimits& limits) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<chat::ToolSpec> specs, load_specs(schema_file));
  ToolSet tools;
  for (chat::ToolSpec& spec : specs) {
    const std::string name(spec.name());
    const auto run = [name, command, limits](const JsonValue& arguments) {
      const JsonValue call =
          JsonValue::object({{"name", JsonValue::string(name)}, {"arguments", arguments}});
      return run_command(command, dump_json(call) + "\n", limits);
    };
    SLUICE_RETURN_IF_ERROR(tools.add(std::move(spec), run).with_context(schema_file.string()));
  }
  return tools;
}

}  // namespace sluice
