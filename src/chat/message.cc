#include "chat/message.h"

#include "chat/text.h"

namespace sluice::chat {
namespace {

std::vector<ContentPart> one_text(std::string text) {
  std::vector<ContentPart> parts;
  if (!text.empty()) parts.push_back({ContentPart::Kind::kText, std::move(text)});
  return parts;
}

ChatMessage plain(Role role, std::string text) {
  ChatMessage message;
  message.role = role;
  message.content = one_text(std::move(text));
  return message;
}

const JsonValue& inner_function(const JsonValue& spec) {
  const JsonValue* function = spec.find("function");
  return function != nullptr && function->is_object() ? *function : spec;
}

JsonValue raw_text_arguments(std::string text) {
  return JsonValue::object({{"arguments", JsonValue::string(std::move(text))}});
}

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "unknown";
}

ChatMessage ChatMessage::system(std::string text) {
  return plain(Role::kSystem, std::move(text));
}
ChatMessage ChatMessage::user(std::string text) {
  return plain(Role::kUser, std::move(text));
}

ChatMessage ChatMessage::assistant(std::string reasoning, std::string text,
                                   std::vector<ToolCall> calls) {
  ChatMessage message = plain(Role::kAssistant, std::move(text));
  message.reasoning_content = std::move(reasoning);
  message.tool_calls = std::move(calls);
  return message;
}

ChatMessage ChatMessage::tool(std::string id, std::string result) {
  ChatMessage message = plain(Role::kTool, std::move(result));
  message.tool_call_id = std::move(id);
  return message;
}

std::string ChatMessage::text() const {
  std::string all;
  for (const ContentPart& part : content) all += part.text;
  return all;
}

std::string_view ToolSpec::name() const {
  const JsonValue* name = inner_function(json).find("name");
  return name != nullptr && name->is_string() ? std::string_view(name->text()) : std::string_view();
}

const JsonValue* ToolSpec::parameters() const {
  const JsonValue* parameters = inner_function(json).find("parameters");
  return parameters != nullptr && parameters->is_object() ? parameters : nullptr;
}

JsonValue arguments_object(const JsonValue& arguments) {
  if (arguments.is_object()) return arguments;
  if (arguments.is_null()) return JsonValue::object();
  if (!arguments.is_string()) return raw_text_arguments(dump_json_python(arguments));
  if (strip(arguments.text()).empty()) return JsonValue::object();
  Result<JsonValue> parsed = parse_json(arguments.text());
  if (!parsed.ok()) return raw_text_arguments(arguments.text());
  if (parsed->is_object()) return *std::move(parsed);
  if (parsed->is_null()) return JsonValue::object();
  return raw_text_arguments(arguments.text());
}

}  // namespace sluice::chat
