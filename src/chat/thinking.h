#pragma once
// The many spellings by which clients ask for more, less or no thinking, in one documented order.

#include "chat/message.h"
#include "chat/template.h"

namespace sluice::chat {

struct ThinkingChoice {
  std::optional<bool> enable_thinking;
  std::optional<bool> preserve_thinking;
  std::optional<std::string> reasoning_effort;  // one of the template's: xhigh, medium, low
  std::optional<int64_t> budget_tokens;         // longest thought

  void apply_to(RenderOptions* options) const;
};

/// Reads a request body (OpenAI chat, Responses or Anthropic). For each field the first of these
/// that is given wins:
///   1. chat_template_kwargs {enable_thinking, preserve_thinking, reasoning_effort}
///   2. top-level enable_thinking, preserve_thinking, thinking_token_budget
///   3. reasoning_effort, reasoning.effort, output_config.effort, thinking {type, budget_tokens}
///   4. `defaults`
/// Effort none, minimal and disabled switch thinking off; low and medium stay; high, xhigh and max
/// are xhigh. An explicit enable_thinking beats an effort. On templates without effort text, low
/// and medium become budgets. Refused: a field of the wrong type, an unknown effort, a negative
/// budget.
Result<ThinkingChoice> resolve_thinking(const JsonValue& request, const ChatTemplate& chat_template,
                                        const ThinkingChoice& defaults);

}  // namespace sluice::chat
