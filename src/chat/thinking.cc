#include "chat/thinking.h"

namespace sluice::chat {
namespace {

// Longest thought where the template has no words for an effort (estimated: what low and medium
// take on Qwen3.8).
constexpr int64_t kLowBudgetTokens = 2'048;
constexpr int64_t kMediumBudgetTokens = 8'192;

/// What one source of the request says; unset fields say nothing.
struct Wish {
  std::optional<bool> enable;
  std::optional<bool> preserve;
  std::optional<std::string> effort;  // low, medium, xhigh
  std::optional<int64_t> budget;

  void fill_from(const Wish& weaker) {
    if (!enable && !effort) {  // an effort implies thinking on or off, so the two go together
      enable = weaker.enable;
      effort = weaker.effort;
    } else if (!effort && enable.value_or(true)) {
      effort = weaker.effort;
    }
    if (!preserve) preserve = weaker.preserve;
    if (!budget) budget = weaker.budget;
  }
};

const JsonValue* given(const JsonValue* object, std::string_view key) {
  const JsonValue* value = object != nullptr ? object->find(key) : nullptr;
  return value != nullptr && !value->is_null() ? value : nullptr;
}

Status read_bool(const JsonValue* object, std::string_view key, std::optional<bool>* out) {
  const JsonValue* value = given(object, key);
  if (value == nullptr) return Status();
  if (!value->is_bool()) return invalid_argument("{} must be true or false", key);
  *out = value->as_bool();
  return Status();
}

Status read_budget(const JsonValue* object, std::string_view key, std::optional<int64_t>* out) {
  const JsonValue* value = given(object, key);
  if (value == nullptr) return Status();
  const Result<int64_t> number = value->as_int64();
  if (!number.ok() || *number < 0)
    return invalid_argument("{} must be a count of tokens, 0 or more", key);
  *out = *number;
  return Status();
}

Status read_effort(const JsonValue* object, std::string_view key, Wish* wish) {
  const JsonValue* value = given(object, key);
  if (value == nullptr || wish->effort) return Status();
  const std::string word = value->is_string() ? value->text() : dump_json(*value);
  if (word == "none" || word == "minimal" || word == "disabled") {
    if (!wish->enable) wish->enable = false;
  } else if (word == "low" || word == "medium") {
    wish->effort = word;
  } else if (word == "high" || word == "xhigh" || word == "max") {
    wish->effort = "xhigh";
  } else {
    return invalid_argument("{} is {}; expected none, minimal, low, medium, high, xhigh or max",
                            key, json_quote(word));
  }
  return Status();
}

/// Anthropic's {"type": "enabled" | "adaptive" | "disabled", "budget_tokens"}.
Status read_anthropic(const JsonValue* thinking, Wish* wish) {
  if (thinking == nullptr) return Status();
  const JsonValue* type = given(thinking, "type");
  if (type == nullptr || !type->is_string()) return invalid_argument("thinking.type is missing");
  if (type->text() == "disabled") {
    wish->enable = false;
  } else if (type->text() == "enabled" || type->text() == "adaptive") {
    wish->enable = true;
  } else {
    return invalid_argument("thinking.type is '{}'; expected enabled, adaptive or disabled",
                            type->text());
  }
  return read_budget(thinking, "budget_tokens", &wish->budget);
}

Status read_template_kwargs(const JsonValue* kwargs, Wish* wish) {
  SLUICE_RETURN_IF_ERROR(read_bool(kwargs, "enable_thinking", &wish->enable));
  SLUICE_RETURN_IF_ERROR(read_bool(kwargs, "preserve_thinking", &wish->preserve));
  return read_effort(kwargs, "reasoning_effort", wish);
}

Status read_top_level(const JsonValue* request, Wish* wish) {
  SLUICE_RETURN_IF_ERROR(read_bool(request, "enable_thinking", &wish->enable));
  SLUICE_RETURN_IF_ERROR(read_bool(request, "preserve_thinking", &wish->preserve));
  return read_budget(request, "thinking_token_budget", &wish->budget);
}

Status read_efforts(const JsonValue* request, Wish* wish) {
  SLUICE_RETURN_IF_ERROR(read_anthropic(given(request, "thinking"), wish));
  SLUICE_RETURN_IF_ERROR(read_effort(request, "reasoning_effort", wish));
  SLUICE_RETURN_IF_ERROR(read_effort(given(request, "reasoning"), "effort", wish));
  return read_effort(given(request, "output_config"), "effort", wish);
}

ThinkingChoice to_choice(Wish wish, const ChatTemplate& chat_template) {
  ThinkingChoice choice;
  choice.preserve_thinking = wish.preserve;
  choice.budget_tokens = wish.budget;
  choice.enable_thinking = wish.enable;
  if (!wish.effort || !wish.enable.value_or(true)) return choice;
  choice.enable_thinking = true;  // some templates do not think unless told to
  if (chat_template.has_reasoning_effort) {
    choice.reasoning_effort = wish.effort;
  } else if (!choice.budget_tokens && wish.effort != "xhigh") {
    choice.budget_tokens = wish.effort == "low" ? kLowBudgetTokens : kMediumBudgetTokens;
  }
  return choice;
}

}  // namespace

void ThinkingChoice::apply_to(RenderOptions* options) const {
  options->enable_thinking = enable_thinking;
  options->preserve_thinking = preserve_thinking;
  options->reasoning_effort = reasoning_effort;
}

Result<ThinkingChoice> resolve_thinking(const JsonValue& request, const ChatTemplate& chat_template,
                                        const ThinkingChoice& defaults) {
  Wish wish;
  Wish top_level;
  Wish efforts;
  SLUICE_RETURN_IF_ERROR(read_template_kwargs(given(&request, "chat_template_kwargs"), &wish));
  SLUICE_RETURN_IF_ERROR(read_top_level(&request, &top_level));
  SLUICE_RETURN_IF_ERROR(read_efforts(&request, &efforts));
  wish.fill_from(top_level);
  wish.fill_from(efforts);
  wish.fill_from({defaults.enable_thinking, defaults.preserve_thinking, defaults.reasoning_effort,
                  defaults.budget_tokens});
  return to_choice(std::move(wish), chat_template);
}

}  // namespace sluice::chat
