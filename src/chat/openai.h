#pragma once
// OpenAI's JSON to the types of message.h. Every refusal names the place
// ("messages[3].content[0]").

#include "chat/message.h"

namespace sluice::chat {

struct ConversionLimits {
  size_t max_messages = 100'000;
  size_t max_tools = 1'024;
  size_t max_calls_per_message = 1'024;
  size_t max_name_bytes = 256;
};

/// `messages`: array of {"role", "content", "reasoning_content" or "reasoning", "tool_calls",
/// "tool_call_id"}. content is a string, null, absent or a list of parts: a part with key image,
/// image_url or type image is an image; key video or type video a video; else key text a text.
/// tool_calls may be wrapped in "function" or not, with arguments as JSON text or as a value
/// (`arguments_object` says how each is read). Unknown keys are ignored.
Result<std::vector<ChatMessage>> messages_from_json(const JsonValue& messages,
                                                    const ConversionLimits& limits = {});

/// `tools`: array, or null for none. Each needs a name that the call syntax can carry (no '<', '>',
/// space or control character) and that no other tool has. The JSON is kept as it is.
Result<std::vector<ToolSpec>> tools_from_json(const JsonValue& tools,
                                              const ConversionLimits& limits = {});

struct ToolChoice {
  enum class Mode {
    kAuto,
    kNone,  // the prompt keeps the tools, so its prefix stays cached; parser and grammar get none
    kRequired,  // at least one call, to one of `names`
  };
  Mode mode = Mode::kAuto;
  std::vector<std::string> names;  // the tools that may be called; empty in kNone
};

/// tool_choice as "auto", "none", "required", {"type": "function", "function": {"name"}} (also with
/// the name outside), or {"type": "allowed_tools", ...}. Absent (nullptr or null) is auto with
/// tools, else none. Refused: required or a named tool without tools, and a name that is not
/// declared.
Result<ToolChoice> tool_choice_from_json(const JsonValue* choice,
                                         const std::vector<ToolSpec>& tools);

/// The tools that a choice lets the model call, for ChatParser and for a grammar.
std::vector<ToolSpec> callable_tools(const ToolChoice& choice, const std::vector<ToolSpec>& tools);

}  // namespace sluice::chat
