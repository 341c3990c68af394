#include "apps/tools/tool_set.h"

#include "apps/tools/text.h"
#include "base/utf8.h"

namespace sluice {
namespace {

constexpr size_t kNameShownMax = 200;

/// The first required parameter that `arguments` lacks; "" when none.
std::string missing_parameter(const chat::ToolSpec& spec, const JsonValue& arguments) {
  const JsonValue* schema = spec.parameters();
  const JsonValue* required = schema == nullptr ? nullptr : schema->find("required");
  if (required == nullptr || !required->is_array()) return "";
  for (const JsonValue& name : required->items()) {
    if (name.is_string() && arguments.find(name.text()) == nullptr) return name.text();
  }
  return "";
}

ToolResult failure(std::string_view message) {
  return {"error: " + printable_text(message), true};
}

}  // namespace

Status ToolSet::add(chat::ToolSpec spec, Run run) {
  for (const chat::ToolSpec& other : specs_) {
    if (other.name() == spec.name()) return invalid_argument("two tools are named {}", spec.name());
  }
  specs_.push_back(std::move(spec));
  runs_.push_back(std::move(run));
  return Status();
}

ToolResult ToolSet::run(std::string_view name, const JsonValue& arguments) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].name() != name) continue;
    const std::string missing = missing_parameter(specs_[i], arguments);
    if (!missing.empty()) return failure("missing parameter: " + missing);
    Result<std::string> result = runs_[i](arguments);
    if (!result.ok()) return failure(result.status().message());
    std::string text;
    append_lossy_utf8(*result, &text);
    return {std::move(text), false};
  }
  return failure(fmt::format("unknown tool: {}", cut_text(name, kNameShownMax)));
}

Result<std::string> text_argument(const JsonValue& arguments, std::string_view name) {
  const JsonValue* value = arguments.find(name);
  if (value == nullptr) return std::string();
  if (value->is_string() || value->is_number()) return value->text();
  return invalid_argument("parameter {} must be a string", name);
}

Result<int64_t> integer_argument(const JsonValue& arguments, std::string_view name,
                                 int64_t fallback) {
  const JsonValue* value = arguments.find(name);
  if (value == nullptr || value->is_null()) return fallback;
  const Result<int64_t> number =
      value->is_integer() ? value->as_int64() : Result<int64_t>(invalid_argument("no integer"));
  if (!number.ok()) return invalid_argument("parameter {} must be an integer", name);
  return number;
}

}  // namespace sluice
