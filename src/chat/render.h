#pragma once
// Messages to prompt text, byte for byte what jinja2 makes of the checkpoint's template.

#include "chat/message.h"
#include "chat/template.h"

namespace sluice::chat {

/// A piece of the prompt. In trusted pieces added tokens ("<|im_start|>", "<think>") become control
/// ids; in the others, which hold message bodies, names, arguments and tools, they must be encoded
/// as plain text. The split says only where added tokens may be matched: normalisation and
/// pre-tokenisation run across pieces, or ids differ from the oracle's.
struct Segment {
  std::string text;
  bool trusted = false;
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct Prompt {
  std::vector<Segment> segments;  // neighbours differ in trust; none is empty
  bool in_thought = false;  // the text ends inside an open thought: where the ChatParser starts

  std::string text() const;
};

/// The whole conversation. Refusals (kInvalidArgument): no messages, no user query, a system
/// message that is not the first or holds an image, an unknown reasoning_effort. kUnsupported: an
/// image under VisionPolicy::kRefuse.
Result<Prompt> render(const ChatTemplate& chat_template, const std::vector<ChatMessage>& messages,
                      const std::vector<ToolSpec>& tools, const RenderOptions& options);

/// What a session already holds: its first `num_messages` messages, the last one the assistant's
/// turn as the model emitted it, up to and including <|im_end|>; rendered with `options` and the
/// same tools.
struct SessionPrefix {
  size_t num_messages = 0;
  RenderOptions options;
};

struct Continuation {
  Prompt prompt;  // text to append
  /// Messages that render as they did. Equal to SessionPrefix::num_messages: append `prompt` to the
  /// session as it stands; it begins with the newline that follows the emitted <|im_end|>. Less:
  /// the template rewrites message `num_stable_messages` (a new user query drops its thought, or an
  /// option changed). Cut the session where that message begins, that is after the newline behind
  /// the <|im_end|> of the one before; `prompt` goes on from there. Zero: the system block changed
  /// too; `prompt` is the whole conversation.
  size_t num_stable_messages = 0;

  bool appends(const SessionPrefix& session) const {
    return num_stable_messages == session.num_messages;
  }
};

/// The agent loop's step: only the new messages and the generation prompt. Cost: the new text, plus a
/// glance at the role of every message.
///   text(render(messages, options)) == session text + text(prompt)   when it appends
/// holds if the model emitted what the template would have rendered; when it did not, the emitted
/// ids are the truth and appending is still right. Refused: as `render`, and a session whose last
/// message is not the assistant's.
Result<Continuation> render_continuation(const ChatTemplate& chat_template,
                                         const std::vector<ChatMessage>& messages,
                                         const std::vector<ToolSpec>& tools,
                                         const RenderOptions& options,
                                         const SessionPrefix& session);

}  // namespace sluice::chat
