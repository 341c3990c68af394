#pragma once
// Whether the answer's text stands inside a code fence, inline code or quotes, where a tag is an
// example and no call.

#include <string>
#include <string_view>

namespace sluice::chat {

class QuoteTracker {
 public:
  void feed(std::string_view text);
  /// After a call: a new line begins and nothing is open.
  void reset() { *this = QuoteTracker(); }

  bool is_quoted() const;
  bool at_line_start() const { return line_is_blank_; }
  /// The last thing but white space is `tag`.
  bool follows(std::string_view tag) const { return std::string_view(tail_).ends_with(tag); }

 private:
  void feed(char c);

  bool in_fence_ = false;
  bool line_is_blank_ = true;      // only spaces so far
  bool line_is_fence_ = false;     // the line that opens or closes a fence
  int leading_ticks_ = 0;          // backticks that begin the line
  bool inline_ticks_odd_ = false;  // an inline code span is open
  char last_ = '\n';
  std::string tail_;  // the last characters that are no white space
};

}  // namespace sluice::chat
