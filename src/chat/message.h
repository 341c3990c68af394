#pragma once
// A conversation as the chat templates see it. Everything in a message, its tool calls and the
// tools' JSON is untrusted text: the renderer marks it so, and the tokenizer then never turns it
// into control ids.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice::chat {

enum class Role { kSystem, kUser, kAssistant, kTool };

/// "system", "user", "assistant", "tool".
std::string_view role_name(Role role);

struct ContentPart {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text;  // of kText
};

struct ToolCall {
  std::string id;  // pairs the call with its result; never rendered
  std::string name;
  /// An object, rendered in its key order. Null and "" mean no arguments. Anything else is history
  /// of a client that kept a text no JSON reader takes: it is rendered as one parameter, see
  /// `arguments_object`.
  JsonValue arguments = JsonValue::object();
};

struct ChatMessage {
  Role role = Role::kUser;
  /// In order. Empty stands for null, absent and "" alike; the templates render them the same.
  std::vector<ContentPart> content;
  /// Of an assistant. Unset is not the same as empty: Qwen3.5 and 3.6 then look for a thought
  /// inside `content`.
  std::optional<std::string> reasoning_content = std::nullopt;
  std::vector<ToolCall> tool_calls;  // of an assistant
  std::string tool_call_id;          // of a tool result

  static ChatMessage system(std::string text);
  static ChatMessage user(std::string text);
  static ChatMessage assistant(std::string reasoning, std::string text,
                               std::vector<ToolCall> calls = {});
  static ChatMessage tool(std::string tool_call_id, std::string result);

  /// The text parts, joined.
  std::string text() const;
};

/// A tool as the client gave it: {"type": "function", "function": {"name", "parameters", ...}}, or
/// the inner object alone. Key order and extra fields are part of the prompt.
struct ToolSpec {
  JsonValue json;

  /// Empty when there is none.
  std::string_view name() const;
  /// The JSON schema of the arguments, or nullptr.
  const JsonValue* parameters() const;
};

/// What to do with image and video parts.
enum class VisionPolicy {
  kMarkers,  // the template's own placeholder tokens
  kNote,     // a fixed text note; the same for every image, so that the prefix stays cached
  kRefuse,   // kUnsupported
};

/// The template's variables. Unset is a value of its own: each template has its own default.
struct RenderOptions {
  bool add_generation_prompt = true;
  /// The last message is an assistant's and is left open for the model to continue: no end-of-turn,
  /// no new turn. Its thought is closed unless it has reasoning and no content. Wins over
  /// add_generation_prompt.
  bool continue_final_message = false;
  std::optional<bool> enable_thinking = std::nullopt;
  std::optional<bool> preserve_thinking = std::nullopt;
  std::optional<std::string> reasoning_effort = std::nullopt;  // Qwen3.8 only: xhigh, medium, low
  bool add_vision_id = false;
  VisionPolicy vision = VisionPolicy::kMarkers;

  friend bool operator==(const RenderOptions&, const RenderOptions&) = default;
};

/// The mapping that `arguments` of a history call stands for. A string is parsed as JSON first.
/// Object: itself; null, "" and white space: no arguments; any other value or text: {"arguments":
/// TEXT}, the fixed form for what cannot be a mapping.
JsonValue arguments_object(const JsonValue& arguments);

}  // namespace sluice::chat
