#include "chat/conversation.h"

#include <algorithm>

namespace sluice::chat {
namespace {

bool has_call_id(const ChatMessage& message, std::string_view id) {
  return std::ranges::any_of(message.tool_calls,
                             [&](const ToolCall& call) { return call.id == id; });
}

bool any_ids(const ChatMessage& message) {
  return std::ranges::any_of(message.tool_calls,
                             [](const ToolCall& call) { return !call.id.empty(); });
}

/// Position of the first call with this id that `taken` leaves, or the number of calls.
size_t find_call(const std::vector<ToolCall>& calls, std::string_view id,
                 const std::vector<bool>& taken) {
  size_t i = 0;
  while (i < calls.size() && (taken[i] || calls[i].id != id)) ++i;
  return i;
}

/// Orders messages[first, last), the results right behind the assistant's turn `first - 1`.
Status order_run(std::vector<ChatMessage>& messages, size_t first, size_t last) {
  const std::vector<ToolCall>& calls = messages[first - 1].tool_calls;
  std::vector<bool> taken(calls.size(), false);
  std::vector<std::pair<size_t, ChatMessage>> placed;
  for (size_t i = first; i < last; ++i) {
    const size_t call = find_call(calls, messages[i].tool_call_id, taken);
    if (call == calls.size()) {
      return invalid_argument(
          "messages[{}]: tool_call_id '{}' is no unanswered call of messages[{}]", i,
          messages[i].tool_call_id, first - 1);
    }
    taken[call] = true;
    placed.emplace_back(call, std::move(messages[i]));
  }
  std::ranges::stable_sort(placed, {}, [](const auto& entry) { return entry.first; });
  for (size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].first != i) {
      return invalid_argument(
          "messages[{}]: call '{}' has no result, but a later call of that turn has", first - 1,
          calls[i].id);
    }
    messages[first + i] = std::move(placed[i].second);
  }
  return Status();
}

/// A result that is not right behind its call keeps its place; its id must still belong to a call
/// before it.
Status check_detached(const std::vector<ChatMessage>& messages, size_t idx) {
  for (size_t i = idx; i-- > 0;) {
    if (has_call_id(messages[i], messages[idx].tool_call_id)) return Status();
  }
  return invalid_argument("messages[{}]: tool_call_id '{}' belongs to no call before it", idx,
                          messages[idx].tool_call_id);
}

bool is_late_system(const std::vector<ChatMessage>& placed, const ChatMessage& message) {
  return message.role == Role::kSystem && !placed.empty() && placed.back().role != Role::kSystem;
}

void append_text(ChatMessage* target, const ChatMessage& message) {
  if (!target->content.empty() && !message.content.empty()) {
    target->content.push_back({ContentPart::Kind::kText, "\n\n"});
  }
  target->content.insert(target->content.end(), message.content.begin(), message.content.end());
}

void sort_keys(JsonValue* value) {
  if (value->is_array()) {
    for (JsonValue& item : value->items()) sort_keys(&item);
  }
  if (!value->is_object()) return;
  std::ranges::stable_sort(value->members(), {}, &JsonValue::Member::first);
  for (auto& [key, member] : value->members()) sort_keys(&member);
}

}  // namespace

Result<std::vector<ChatMessage>> order_tool_results(std::vector<ChatMessage> messages) {
  for (size_t i = 0; i < messages.size();) {
    if (messages[i].role != Role::kTool) {
      ++i;
      continue;
    }
    size_t last = i;
    while (last < messages.size() && messages[last].role == Role::kTool) ++last;
    const bool is_behind_calls = i > 0 && !messages[i - 1].tool_calls.empty();
    if (is_behind_calls && any_ids(messages[i - 1])) {
      SLUICE_RETURN_IF_ERROR(order_run(messages, i, last));
    } else if (!is_behind_calls) {
      for (size_t k = i; k < last; ++k) SLUICE_RETURN_IF_ERROR(check_detached(messages, k));
    }
    i = last;
  }
  return messages;
}

std::vector<ChatMessage> place_system_messages(std::vector<ChatMessage> messages, LateSystem late) {
  std::vector<ChatMessage> placed;
  placed.reserve(messages.size());
  for (ChatMessage& message : messages) {
    if (message.role != Role::kSystem || placed.empty()) {
      placed.push_back(std::move(message));
    } else if (!is_late_system(placed, message)) {
      append_text(&placed.back(), message);
    } else if (late == LateSystem::kFold && placed.back().role != Role::kAssistant) {
      append_text(&placed.back(), message);
    } else {
      message.role = Role::kUser;
      placed.push_back(std::move(message));
    }
  }
  return placed;
}

std::vector<ToolSpec> canonical_tools(std::vector<ToolSpec> tools) {
  std::ranges::stable_sort(tools, {},
                           [](const ToolSpec& tool) { return std::string(tool.name()); });
  for (ToolSpec& tool : tools) sort_keys(&tool.json);
  return tools;
}

}  // namespace sluice::chat
