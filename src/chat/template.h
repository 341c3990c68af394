#pragma once
// The chat templates we know, as data. A checkpoint's template file is recognised by its exact
// bytes; there is no Jinja.

#include <span>
#include <string_view>

#include "base/status.h"

namespace sluice::chat {

/// When an assistant turn is rendered with its thought block.
enum class KeepThinking {
  kAfterLastQuery,       // index > that of the last user message that is not a tool response
  kPreserveWhenTrue,     // also when preserve_thinking is true
  kPreserveUnlessFalse,  // also when preserve_thinking is true or unset
  kAlways,
};

enum class ValueSpelling {
  kPythonStr,  // True, None, 1.5; JSON for objects and arrays
  kJson,       // true, null, 1.5; strings raw
};

struct ChatTemplate {
  std::string_view name;
  std::string_view models;
  std::string_view xxh3_128;  // of the template text, 32 hex digits
  KeepThinking keep_thinking;
  ValueSpelling value_spelling;
  /// Content "<think>..</think>text" is split when reasoning_content is unset.
  bool finds_thought_in_content;
  bool thinks_by_default;             // enable_thinking unset
  bool has_reasoning_effort;          // effort text in the system block
  bool renders_empty_system;          // an empty system message still makes a system turn
  std::string_view tool_instruction;  // after "</tools>"
};

std::span<const ChatTemplate> known_templates();

/// The traits of a checkpoint's template, from the exact bytes of its file. kUnsupported lists what
/// is known.
Result<const ChatTemplate*> find_template(std::string_view template_text);
/// By `name`, for tools and tests.
Result<const ChatTemplate*> find_template_by_name(std::string_view name);

}  // namespace sluice::chat
