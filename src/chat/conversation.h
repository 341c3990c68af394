#pragma once
// Repairs that a server may apply to a client's list before rendering. None is applied behind the
// caller's back.

#include "chat/message.h"

namespace sluice::chat {

/// Puts the results that follow an assistant turn in the order of its calls, by tool_call_id: the
/// templates drop ids and the model reads results by position. Ids may repeat in a conversation; a
/// result belongs to the nearest call before it. When none of a turn's calls has an id its results
/// stay as they are. Refused, with the index: an id that no earlier call has, and results that
/// would leave a gap before an answered call.
Result<std::vector<ChatMessage>> order_tool_results(std::vector<ChatMessage> messages);

enum class LateSystem {
  /// A user turn of its own: the render stays append-only, but the turn counts as a user query.
  kOwnTurn,
  /// Joined to the end of the user or tool message before it, so that it is no new query; behind an
  /// assistant's turn as kOwnTurn.
  kFold,
};

/// Makes a list that the templates accept from one with several system messages: leading ones are
/// merged into one, later ones keep their place as user text and are never hoisted to the top
/// (which would change the whole prefix).
std::vector<ChatMessage> place_system_messages(std::vector<ChatMessage> messages, LateSystem late);

/// Tools sorted by name, keys sorted at every depth, for clients that shuffle them. Arrays keep
/// their order.
std::vector<ToolSpec> canonical_tools(std::vector<ToolSpec> tools);

}  // namespace sluice::chat
