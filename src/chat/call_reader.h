#pragma once
// Reads one tool call from behind its header to its end.

#include <set>

#include "chat/scanner.h"
#include "chat/tool_value.h"

namespace sluice::chat {

struct CallHeader {
  Match match = Match::kNo;
  size_t num_bytes = 0;            // through the '>' of the function's name
  const ToolSpec* tool = nullptr;  // nullptr with kNo: see undeclared
  std::string_view undeclared;     // the name, when everything else was right
  bool is_control = false;         // opened by the added token
};

/// A call's header at `pos`: "<tool_call>", white space, "<function=NAME>" (`is_bare`: the latter
/// alone), with NAME one of `tools`, then a parameter, the function's end, or the end of the text.
CallHeader match_call_header(const PieceBuffer& in, size_t pos, const std::vector<ToolSpec>& tools,
                             bool is_bare);

/// Turns a call's text into events. The format's own rules are in parser.h.
class CallReader {
 public:
  CallReader(const CallHeader& header, size_t call_idx);

  void begin(std::vector<ChatEvent>* events);
  /// Reads what can be decided; true when the call is over. After the end of the text it is over
  /// always.
  bool read(PieceBuffer& in, std::vector<ChatEvent>* events);

 private:
  enum class State { kBetween, kValueStart, kValue, kTail, kDone };
  enum class Closer { kNone, kParameter, kFunction, kCall, kNextParameter, kNextCall };
  struct Closing {
    Match match = Match::kNo;
    Closer closer = Closer::kNone;
    size_t end = 0;  // behind the closing tag; for the kNext ones, where it starts
  };

  bool step(PieceBuffer& in);
  bool step_between(PieceBuffer& in);
  bool step_value_start(PieceBuffer& in);
  bool step_value(PieceBuffer& in);
  bool step_tail(PieceBuffer& in);

  Closing closing_at(const PieceBuffer& in, size_t pos, bool is_line_start) const;
  Closing parameter_close(const PieceBuffer& in, size_t pos) const;
  Closing function_close(const PieceBuffer& in, size_t pos) const;
  Closing call_close(const PieceBuffer& in, size_t pos) const;
  Closing next_parameter(const PieceBuffer& in, size_t pos) const;
  Match follows_parameter(Scanner scan) const;
  Match follows_function(Scanner scan) const;
  Match call_tag(Scanner scan, std::string_view tag) const;
  void apply(const Closing& closing, PieceBuffer& in);

  void start_value(std::string_view key);
  void add_value(std::string_view text);
  void end_value(bool is_cut);
  void stream_value();
  void finish_call(bool is_complete);
  std::string member_start();
  void arguments(std::string text);

  const ToolSpec* tool_;
  bool is_control_;
  size_t call_idx_;
  State state_ = State::kBetween;
  std::vector<ChatEvent>* events_ = nullptr;  // of the running read()

  std::set<std::string, std::less<>> keys_;  // seen so far
  std::string key_;
  ValueTypes types_;
  std::string value_;          // while it cannot be streamed
  bool is_streaming_ = false;  // a string whose text goes out as it comes
  bool is_repeated_ = false;   // a key given before: the first value stands
  bool is_empty_value_ = true;
  bool holds_function_ = false;  // the value quotes a call: a parameter's opener in it is data
  bool has_members_ = false;
};

}  // namespace sluice::chat
