#include "apps/tools/builtin_tools.h"

#include "apps/tools/calc.h"
#include "apps/tools/file_tools.h"

namespace sluice {
namespace {

// Key order as written: it is the prompt's.
constexpr std::string_view kListDir =
    R"({"type": "function", "function": {"name": "list_dir", "description": "List the entries of a directory.", "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "Directory path"}}, "required": ["path"]}}})";
constexpr std::string_view kReadFile =
    R"({"type": "function", "function": {"name": "read_file", "description": "Read a text file.", "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "File path"}, "start_line": {"type": "integer", "description": "First line to read, from 1"}}, "required": ["path"]}}})";
constexpr std::string_view kSearch =
    R"({"type": "function", "function": {"name": "search", "description": "Find lines that contain a text.", "parameters": {"type": "object", "properties": {"pattern": {"type": "string", "description": "Text to look for"}, "path": {"type": "string", "description": "File or directory to search"}}, "required": ["pattern", "path"]}}})";
constexpr std::string_view kCalc =
    R"({"type": "function", "function": {"name": "calc", "description": "Evaluate an arithmetic expression.", "parameters": {"type": "object", "properties": {"expression": {"type": "string", "description": "Expression with + - * / and parentheses"}}, "required": ["expression"]}}})";
constexpr std::string_view kWriteFile =
    R"({"type": "function", "function": {"name": "write_file", "description": "Write a text file.", "parameters": {"type": "object", "properties": {"path": {"type": "string", "description": "File path"}, "content": {"type": "string", "description": "Text to write"}}, "required": ["path", "content"]}}})";

void add(ToolSet* tools, std::string_view schema, ToolSet::Run run) {
  Result<JsonValue> json = parse_json(schema);
  SLUICE_CHECK(json.ok());
  SLUICE_CHECK(tools->add(chat::ToolSpec{std::move(json).value()}, std::move(run)).ok());
}

}  // namespace

ToolSet builtin_tools(std::shared_ptr<const ConfinedDir> dir, bool allow_write) {
  ToolSet tools;
  add(&tools, kListDir, [dir](const JsonValue& arguments) -> Result<std::string> {
    SLUICE_ASSIGN_OR_RETURN(const std::string path, text_argument(arguments, "path"));
    return list_dir(*dir, path);
  });
  add(&tools, kReadFile, [dir](const JsonValue& arguments) -> Result<std::string> {
    SLUICE_ASSIGN_OR_RETURN(const std::string path, text_argument(arguments, "path"));
    SLUICE_ASSIGN_OR_RETURN(const int64_t start, integer_argument(arguments, "start_line", 1));
    return read_text_file(*dir, path, start);
  });
  add(&tools, kSearch, [dir](const JsonValue& arguments) -> Result<std::string> {
    SLUICE_ASSIGN_OR_RETURN(const std::string pattern, text_argument(arguments, "pattern"));
    SLUICE_ASSIGN_OR_RETURN(const std::string path, text_argument(arguments, "path"));
    return search(*dir, pattern, path);
  });
  add(&tools, kCalc, [](const JsonValue& arguments) -> Result<std::string> {
    SLUICE_ASSIGN_OR_RETURN(const std::string expression, text_argument(arguments, "expression"));
    return calc(expression);
  });
  if (!allow_write) return tools;
  add(&tools, kWriteFile, [dir](const JsonValue& arguments) -> Result<std::string> {
    SLUICE_ASSIGN_OR_RETURN(const std::string path, text_argument(arguments, "path"));
    SLUICE_ASSIGN_OR_RETURN(const std::string content, text_argument(arguments, "content"));
    return write_text_file(*dir, path, content);
  });
  return tools;
}

}  // namespace sluice
