#include "tests/unit/chat/render_case.h"

namespace sluice::chat {
namespace {

std::optional<bool> flag(const JsonValue& options, std::string_view key) {
  const JsonValue* value = options.find(key);
  return value != nullptr && value->is_bool() ? std::optional<bool>(value->as_bool())
                                              : std::nullopt;
}

RenderOptions options_from_json(const JsonValue& json) {
  RenderOptions options;
  options.add_generation_prompt = flag(json, "add_generation_prompt").value_or(false);
  options.enable_thinking = flag(json, "enable_thinking");
  options.preserve_thinking = flag(json, "preserve_thinking");
  options.add_vision_id = flag(json, "add_vision_id").value_or(false);
  if (const JsonValue* effort = json.find("reasoning_effort"))
    options.reasoning_effort = effort->text();
  return options;
}

JsonValue member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  return value != nullptr ? *value : JsonValue();
}

}  // namespace

Result<Prompt> render_case(const ChatTemplate& chat_template, const JsonValue& input) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ChatMessage> messages,
                          messages_from_json(member(input, "messages")));
  SLUICE_ASSIGN_OR_RETURN(const std::vector<ToolSpec> tools,
                          tools_from_json(member(input, "tools")));
  return render(chat_template, messages, tools, options_from_json(member(input, "options")));
}

}  // namespace sluice::chat
