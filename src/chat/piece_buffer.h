#pragma once
// The text that the parser has not decided on yet, and for each byte what kind of piece it came in.

#include <string>
#include <string_view>

#include "chat/parser.h"

namespace sluice::chat {

/// Valid UTF-8 whatever is pushed: each maximal invalid subpart becomes U+FFFD, as in Python's
/// "replace"; a character cut by a push waits for its rest. So what is read depends on the bytes,
/// not on the cuts.
class PieceBuffer {
 public:
  void push(std::string_view text, PieceKind kind);
  /// No more text: an unfinished character becomes U+FFFD.
  void finish();
  bool is_finished() const { return is_finished_; }

  std::string_view text() const { return std::string_view(text_).substr(begin_); }
  /// Of the byte at `pos` of text(). A tag's kind is that of its first byte.
  PieceKind kind_at(size_t pos) const { return static_cast<PieceKind>(kinds_[begin_ + pos]); }

  void consume(size_t num_bytes);
  /// Also appends what is consumed to `recorder`, until called with nullptr.
  void record_to(std::string* recorder) { recorder_ = recorder; }

 private:
  void append(std::string_view text, PieceKind kind);

  std::string text_;
  std::string kinds_;  // one a byte of text_
  size_t begin_ = 0;
  std::string partial_;  // first bytes of an unfinished character
  std::string* recorder_ = nullptr;
  bool is_finished_ = false;
};

}  // namespace sluice::chat
