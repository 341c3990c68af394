#pragma once
// What the model wrote to reasoning, content and tool calls. The result is a function of the text
// (and of which bytes came from control ids), never of how it was cut into pieces. Nothing the
// model writes is an error.

#include <memory>
#include <span>

#include "chat/message.h"

namespace sluice::chat {

/// Where a piece of text came from. With ids at hand say so: a tag that is spelled by ordinary
/// tokens is then told from the real one.
enum class PieceKind {
  kUnknown,  // the caller cannot tell; tags count wherever they are credible
  kOrdinary,  // ordinary tokens; a think tag spelled here is text, and so is any tag inside a thought
  kControl,  // exactly one added token, whole: "<think>", "</think>", "<tool_call>", ...
};

struct ChatEvent {
  enum class Kind {
    kReasoning,          // text: more of the thought
    kContent,            // text: more of the answer
    kToolCallBegin,      // call_idx, text: the tool's name
    kToolCallArguments,  // call_idx, text: more of the arguments; the pieces joined are a JSON object
    kToolCallEnd,        // call_idx, is_complete
  };
  Kind kind;
  std::string text;
  size_t call_idx = 0;
  bool is_complete = true;  // false: the text ended inside the call; do not run it

  friend bool operator==(const ChatEvent&, const ChatEvent&) = default;
};

struct ParsedToolCall {
  std::string name;
  std::string arguments_json;  // the joined kToolCallArguments pieces
  JsonValue arguments;         // the same, parsed
  bool is_complete = true;
};

struct ParsedMessage {
  std::string reasoning;
  std::string content;
  std::vector<ParsedToolCall> tool_calls;
  bool ended_in_thought = false;  // the turn ended before </think>: no answer was begun
  /// Names that no tool has, of calls with a right header; the text of these calls is content.
  std::vector<std::string> undeclared_names;

  /// For the history: ids[i] becomes the id of call i (missing ones stay empty). Calls that are not
  /// complete are left out.
  ChatMessage to_message(std::span<const std::string> ids = {}) const;
};

/// Calls are recognised by "<tool_call> <function=NAME>" with a declared NAME, followed by a
/// parameter or the function's end. A tag that is text (not kControl) is no call inside a code
/// fence, inline code or quotes. A value ends at "</parameter>" when a parameter, the function's
/// end or the end of the text follows; exactly one newline is removed on each side. Missing closers
/// are supplied: a value also ends at a line "<parameter=NAME>" with a declared, unused NAME, and
/// at "</function>" before "</tool_call>". A call completed inside a thought counts only when
/// nothing but calls, white space and </think> follow it. Values are typed by the tool's schema
/// (tool_value.h).
class ChatParser {
 public:
  /// `tools`: those that may be called (none: everything is text). `in_thought`:
  /// Prompt::in_thought.
  ChatParser(const std::vector<ToolSpec>& tools, bool in_thought);
  ~ChatParser();
  ChatParser(ChatParser&&) noexcept;
  ChatParser& operator=(ChatParser&&) noexcept;

  /// Any bytes, cut anywhere; invalid UTF-8 becomes U+FFFD. Text up to, not including, <|im_end|>.
  std::vector<ChatEvent> push(std::string_view text, PieceKind kind = PieceKind::kUnknown);
  /// The end of the turn: releases what was held back and closes what is open. Push nothing after
  /// it.
  std::vector<ChatEvent> finish();

  /// Whether the text so far ends inside the thought; ask after each token to count reasoning
  /// tokens.
  bool in_thought() const;
  /// Complete after finish().
  const ParsedMessage& message() const;

 private:
  class Machine;
  std::unique_ptr<Machine> machine_;
};

/// The whole text at once.
ParsedMessage parse_message(std::string_view text, const std::vector<ToolSpec>& tools,
                            bool in_thought);

}  // namespace sluice::chat
