#include "chat/openai.h"

#include <set>

#include "chat/text.h"

namespace sluice::chat {
namespace {

std::string_view kind_name(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "a boolean";
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kFloat:
      return "a number";
    case JsonValue::Kind::kString:
      return "a string";
    case JsonValue::Kind::kArray:
      return "an array";
    case JsonValue::Kind::kObject:
      return "an object";
  }
  return "unknown";
}

bool is_given(const JsonValue* value) {
  return value != nullptr && !value->is_null();
}

/// "" when the key is absent or null.
Result<std::string> optional_string(const JsonValue& object, std::string_view key,
                                    std::string_view where) {
  const JsonValue* value = object.find(key);
  if (!is_given(value)) return std::string();
  if (!value->is_string()) {
    return invalid_argument("{}.{} is {}; expected a string", where, key, kind_name(*value));
  }
  return value->text();
}

bool has_type(const JsonValue& part, std::string_view type) {
  const JsonValue* given = part.find("type");
  return given != nullptr && given->is_string() && given->text() == type;
}

Result<ContentPart> part_from_json(const JsonValue& part, const std::string& where) {
  if (!part.is_object()) {
    return invalid_argument("{} is {}; expected an object with text, image_url or video", where,
                            kind_name(part));
  }
  if (part.find("image") || part.find("image_url") || has_type(part, "image")) {
    return ContentPart{ContentPart::Kind::kImage, ""};
  }
  if (part.find("video") || has_type(part, "video"))
    return ContentPart{ContentPart::Kind::kVideo, ""};
  const JsonValue* text = part.find("text");
  if (text == nullptr) {
    return invalid_argument("{} is no content part: it has none of text, image, image_url, video",
                            where);
  }
  if (!text->is_string()) {
    return invalid_argument("{}.text is {}; expected a string", where, kind_name(*text));
  }
  return ContentPart{ContentPart::Kind::kText, text->text()};
}

Result<std::vector<ContentPart>> content_from_json(const JsonValue* content,
                                                   const std::string& where) {
  std::vector<ContentPart> parts;
  if (!is_given(content)) return parts;
  if (content->is_string()) {
    if (!content->text().empty()) parts.push_back({ContentPart::Kind::kText, content->text()});
    return parts;
  }
  if (!content->is_array()) {
    return invalid_argument("{} is {}; expected a string, null or a list of parts", where,
                            kind_name(*content));
  }
  for (size_t i = 0; i < content->items().size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(ContentPart part,
                            part_from_json(content->items()[i], fmt::format("{}[{}]", where, i)));
    parts.push_back(std::move(part));
  }
  return parts;
}

Status check_name(std::string_view name, const std::string& where, const ConversionLimits& limits) {
  if (name.empty()) return invalid_argument("{}.name is missing or no string", where);
  if (name.size() > limits.max_name_bytes) {
    return resource_exhausted("{}.name has {} bytes, the limit is {}", where, name.size(),
                              limits.max_name_bytes);
  }
  for (const char c : name) {
    if (c == '<' || c == '>' || c == ' ' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return invalid_argument("{}.name {} holds a character that the call syntax cannot carry",
                              where, json_quote(name));
    }
  }
  return Status();
}

Result<ToolCall> call_from_json(const JsonValue& json, const std::string& where,
                                const ConversionLimits& limits) {
  if (!json.is_object())
    return invalid_argument("{} is {}; expected an object", where, kind_name(json));
  ToolCall call;
  SLUICE_ASSIGN_OR_RETURN(call.id, optional_string(json, "id", where));
  const JsonValue* wrapped = json.find("function");
  const JsonValue& function = is_given(wrapped) ? *wrapped : json;
  SLUICE_ASSIGN_OR_RETURN(call.name, optional_string(function, "name", where));
  SLUICE_RETURN_IF_ERROR(check_name(call.name, where, limits));
  const JsonValue* arguments = function.find("arguments");
  call.arguments = arguments_object(arguments != nullptr ? *arguments : JsonValue());
  return call;
}

Result<std::vector<ToolCall>> calls_from_json(const JsonValue* calls, const std::string& where,
                                              const ConversionLimits& limits) {
  std::vector<ToolCall> result;
  if (!is_given(calls)) return result;
  if (!calls->is_array())
    return invalid_argument("{} is {}; expected a list", where, kind_name(*calls));
  if (calls->items().size() > limits.max_calls_per_message) {
    return resource_exhausted("{} holds {} calls, the limit is {}", where, calls->items().size(),
                              limits.max_calls_per_message);
  }
  for (size_t i = 0; i < calls->items().size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        ToolCall call, call_from_json(calls->items()[i], fmt::format("{}[{}]", where, i), limits));
    result.push_back(std::move(call));
  }
  return result;
}

Result<Role> role_from_json(const JsonValue& message, const std::string& where) {
  SLUICE_ASSIGN_OR_RETURN(const std::string name, optional_string(message, "role", where));
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (name == role_name(role)) return role;
  }
  return invalid_argument("{}.role is '{}'; expected system, user, assistant or tool", where, name);
}

/// "reasoning" is vLLM's newer name for the same field. A value that is no string counts as unset,
/// as in the templates.
std::optional<std::string> reasoning_from_json(const JsonValue& message) {
  for (const char* key : {"reasoning_content", "reasoning"}) {
    const JsonValue* value = message.find(key);
    if (value != nullptr && value->is_string()) return value->text();
  }
  return std::nullopt;
}

Result<ChatMessage> message_from_json(const JsonValue& json, const std::string& where,
                                      const ConversionLimits& limits) {
  if (!json.is_object())
    return invalid_argument("{} is {}; expected an object", where, kind_name(json));
  ChatMessage message;
  SLUICE_ASSIGN_OR_RETURN(message.role, role_from_json(json, where));
  SLUICE_ASSIGN_OR_RETURN(message.content,
                          content_from_json(json.find("content"), where + ".content"));
  if (message.role == Role::kAssistant) {
    message.reasoning_content = reasoning_from_json(json);
    SLUICE_ASSIGN_OR_RETURN(message.tool_calls, calls_from_json(json.find("tool_calls"),
                                                                where + ".tool_calls", limits));
  }
  if (message.role == Role::kTool) {
    SLUICE_ASSIGN_OR_RETURN(message.tool_call_id, optional_string(json, "tool_call_id", where));
  }
  return message;
}

bool is_declared(std::string_view name, const std::vector<ToolSpec>& tools) {
  for (const ToolSpec& tool : tools) {
    if (tool.name() == name) return true;
  }
  return false;
}

std::vector<std::string> names_of(const std::vector<ToolSpec>& tools) {
  std::vector<std::string> names;
  for (const ToolSpec& tool : tools) names.emplace_back(tool.name());
  return names;
}

Result<ToolChoice> checked_choice(ToolChoice choice, const std::vector<ToolSpec>& tools) {
  if (choice.mode == ToolChoice::Mode::kRequired && tools.empty()) {
    return invalid_argument("tool_choice asks for a call, but there are no tools");
  }
  for (const std::string& name : choice.names) {
    if (!is_declared(name, tools))
      return invalid_argument("tool_choice names '{}', which is no declared tool", name);
  }
  return choice;
}

Result<ToolChoice> choice_from_word(std::string_view word, const std::vector<ToolSpec>& tools) {
  if (word == "auto") return ToolChoice{ToolChoice::Mode::kAuto, names_of(tools)};
  if (word == "none") return ToolChoice{ToolChoice::Mode::kNone, {}};
  if (word == "required" || word == "any") {
    return checked_choice({ToolChoice::Mode::kRequired, names_of(tools)}, tools);
  }
  return invalid_argument("tool_choice is '{}'; expected auto, none, required or a function", word);
}

/// The name in {"function": {"name"}} or {"name"}; empty when there is none.
std::string_view choice_name(const JsonValue& choice) {
  const JsonValue* function = choice.find("function");
  const JsonValue* name = (is_given(function) ? *function : choice).find("name");
  return name != nullptr && name->is_string() ? std::string_view(name->text()) : std::string_view();
}

Result<ToolChoice> allowed_tools(const JsonValue& choice, const std::vector<ToolSpec>& tools) {
  const JsonValue* nested = choice.find("allowed_tools");
  const JsonValue& body = is_given(nested) ? *nested : choice;
  const JsonValue* list = body.find("tools");
  if (list == nullptr || !list->is_array()) {
    return invalid_argument("tool_choice.allowed_tools.tools is missing or no list");
  }
  const JsonValue* mode = body.find("mode");
  const bool is_required = mode != nullptr && mode->is_string() && mode->text() == "required";
  ToolChoice result{is_required ? ToolChoice::Mode::kRequired : ToolChoice::Mode::kAuto, {}};
  for (const JsonValue& item : list->items()) result.names.emplace_back(choice_name(item));
  return checked_choice(std::move(result), tools);
}

}  // namespace

Result<std::vector<ChatMessage>> messages_from_json(const JsonValue& messages,
                                                    const ConversionLimits& limits) {
  if (!messages.is_array())
    return invalid_argument("messages is {}; expected a list", kind_name(messages));
  if (messages.items().size() > limits.max_messages) {
    return resource_exhausted("{} messages, the limit is {}", messages.items().size(),
                              limits.max_messages);
  }
  std::vector<ChatMessage> result;
  result.reserve(messages.items().size());
  for (size_t i = 0; i < messages.items().size(); ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        ChatMessage message,
        message_from_json(messages.items()[i], fmt::format("messages[{}]", i), limits));
    result.push_back(std::move(message));
  }
  return result;
}

Result<std::vector<ToolSpec>> tools_from_json(const JsonValue& tools,
                                              const ConversionLimits& limits) {
  std::vector<ToolSpec> result;
  if (tools.is_null()) return result;
  if (!tools.is_array()) return invalid_argument("tools is {}; expected a list", kind_name(tools));
  if (tools.items().size() > limits.max_tools) {
    return resource_exhausted("{} tools, the limit is {}", tools.items().size(), limits.max_tools);
  }
  std::set<std::string, std::less<>> names;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    ToolSpec tool{tools.items()[i]};
    const std::string where = fmt::format("tools[{}]", i);
    SLUICE_RETURN_IF_ERROR(check_name(tool.name(), where, limits));
    if (!names.emplace(tool.name()).second) {
      return invalid_argument("{}: a tool named '{}' was declared before", where, tool.name());
    }
    result.push_back(std::move(tool));
  }
  return result;
}

Result<ToolChoice> tool_choice_from_json(const JsonValue* choice,
                                         const std::vector<ToolSpec>& tools) {
  if (!is_given(choice)) return choice_from_word(tools.empty() ? "none" : "auto", tools);
  if (choice->is_string()) return choice_from_word(choice->text(), tools);
  if (!choice->is_object()) {
    return invalid_argument("tool_choice is {}; expected a string or an object",
                            kind_name(*choice));
  }
  if (has_type(*choice, "allowed_tools")) return allowed_tools(*choice, tools);
  const std::string_view name = choice_name(*choice);
  if (!name.empty())
    return checked_choice({ToolChoice::Mode::kRequired, {std::string(name)}}, tools);
  const JsonValue* type = choice->find("type");
  if (type != nullptr && type->is_string()) return choice_from_word(type->text(), tools);
  return invalid_argument(
      "tool_choice names no function: expected {{\"type\": \"function\", \"function\": {{\"name\": "
      "...}}}}");
}

std::vector<ToolSpec> callable_tools(const ToolChoice& choice, const std::vector<ToolSpec>& tools) {
  std::vector<ToolSpec> result;
  for (const ToolSpec& tool : tools) {
    for (const std::string& name : choice.names) {
      if (tool.name() == name) result.push_back(tool);
    }
  }
  return result;
}

}  // namespace sluice::chat
