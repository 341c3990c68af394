#include "chat/template.h"

#include <array>
#include <string>

#include "base/hash.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kQwenInstruction =
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n"
    "<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
    "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block "
    "must be "
    "nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the "
    "function "
    "call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current "
    "knowledge "
    "and do not tell the user about function calls\n</IMPORTANT>";

constexpr std::string_view kTinyInstruction =
    "\n\nTo call a function, reply with nothing after this format:\n\n"
    "<tool_call>\n<function=example_function_name>\n"
    "<parameter=example_parameter_1>\nvalue_1\n</parameter>\n</function>\n</tool_call>";

constexpr std::array<ChatTemplate, 5> kTemplates = {{
    {.name = "qwen3.5-small",
     .models = "Qwen3.5 0.8B, 2B",
     .xxh3_128 = "b20ce3c106c0a721ea7113e61d9a8bcf",
     .keep_thinking = KeepThinking::kAfterLastQuery,
     .value_spelling = ValueSpelling::kPythonStr,
     .finds_thought_in_content = true,
     .thinks_by_default = false,
     .has_reasoning_effort = false,
     .renders_empty_system = true,
     .tool_instruction = kQwenInstruction},
    {.name = "qwen3.5",
     .models = "Qwen3.5 4B, 9B, 27B, 35B",
     .xxh3_128 = "427b80bb3dda26b10ed0a1d8b9d7e0be",
     .keep_thinking = KeepThinking::kAfterLastQuery,
     .value_spelling = ValueSpelling::kPythonStr,
     .finds_thought_in_content = true,
     .thinks_by_default = true,
     .has_reasoning_effort = false,
     .renders_empty_system = true,
     .tool_instruction = kQwenInstruction},
    {.name = "qwen3.6",
     .models = "Qwen3.6 27B, 35B",
     .xxh3_128 = "572380022568fa7b579b2c2e5ecdae85",
     .keep_thinking = KeepThinking::kPreserveWhenTrue,
     .value_spelling = ValueSpelling::kJson,
     .finds_thought_in_content = true,
     .thinks_by_default = true,
     .has_reasoning_effort = false,
     .renders_empty_system = true,
     .tool_instruction = kQwenInstruction},
    {.name = "qwen3.8",
     .models = "Qwen3.8 27B",
     .xxh3_128 = "cb9dfc65c3b50c42b488fed7dae5f0ed",
     .keep_thinking = KeepThinking::kPreserveUnlessFalse,
     .value_spelling = ValueSpelling::kJson,
     .finds_thought_in_content = false,
     .thinks_by_default = true,
     .has_reasoning_effort = true,
     .renders_empty_system = false,
     .tool_instruction = kQwenInstruction},
    {.name = "tiny-agent",
     .models = "the embedded tiny-agent",
     .xxh3_128 = "e5457518149dd550bc2eadc1e6207816",
     .keep_thinking = KeepThinking::kAlways,
     .value_spelling = ValueSpelling::kJson,
     .finds_thought_in_content = false,
     .thinks_by_default = true,
     .has_reasoning_effort = false,
     .renders_empty_system = false,
     .tool_instruction = kTinyInstruction},
}};

std::string list_known() {
  std::string list;
  for (const ChatTemplate& known : kTemplates) {
    list += fmt::format("{}{} ({}) {}", list.empty() ? " " : "; ", known.name, known.models,
                        known.xxh3_128);
  }
  return list;
}

}  // namespace

std::span<const ChatTemplate> known_templates() {
  return kTemplates;
}

Result<const ChatTemplate*> find_template(std::string_view template_text) {
  const std::string hash = content_hash(template_text);
  for (const ChatTemplate& known : kTemplates) {
    if (known.xxh3_128 == hash) return &known;
  }
  return unsupported(
      "the chat template ({} bytes, XXH3-128 {}) is none of those this build renders; use the "
      "checkpoint's "
      "published chat_template file, byte for byte, of one of:{}",
      template_text.size(), hash, list_known());
}

Result<const ChatTemplate*> find_template_by_name(std::string_view name) {
  for (const ChatTemplate& known : kTemplates) {
    if (known.name == name) return &known;
  }
  return not_found("no chat template is named '{}'; known:{}", name, list_known());
}

}  // namespace sluice::chat
