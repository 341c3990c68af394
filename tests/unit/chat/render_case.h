#pragma once
// One conversation as a JSON object, rendered: what the goldens and the comparison with jinja2
// share.

#include "chat/openai.h"
#include "chat/render.h"

namespace sluice::chat {

/// `input`: {"messages", "tools", "options": {add_generation_prompt, enable_thinking,
/// preserve_thinking, reasoning_effort, add_vision_id}}; absent options are unset.
Result<Prompt> render_case(const ChatTemplate& chat_template, const JsonValue& input);

}  // namespace sluice::chat
