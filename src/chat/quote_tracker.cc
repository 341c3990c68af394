#include "chat/quote_tracker.h"

#include "chat/text.h"

namespace sluice::chat {
namespace {

constexpr size_t kTailBytes = 64;  // half of it holds the longest tag

}  // namespace

void QuoteTracker::feed(std::string_view text) {
  for (const char c : text) feed(c);
}

void QuoteTracker::feed(char c) {
  last_ = c;
  if (!is_ascii_space(c)) {
    if (tail_.size() == kTailBytes) tail_.erase(0, kTailBytes / 2);
    tail_.push_back(c);
  }
  if (c == '\n') {
    line_is_blank_ = true;
    line_is_fence_ = false;
    leading_ticks_ = 0;
    // Code spans rarely cross lines; an odd backtick must not hide a later call.
    inline_ticks_odd_ = false;
    return;
  }
  if (c == '`') {
    inline_ticks_odd_ = !inline_ticks_odd_;
    const bool is_leading = line_is_blank_ || leading_ticks_ > 0;
    if (is_leading && ++leading_ticks_ == 3 && !line_is_fence_) {
      line_is_fence_ = true;
      in_fence_ = !in_fence_;
    }
    line_is_blank_ = false;
    return;
  }
  if (c == ' ' || c == '\t' || c == '\r') return;
  line_is_blank_ = false;
  leading_ticks_ = 0;
}

bool QuoteTracker::is_quoted() const {
  if (in_fence_ || last_ == '"' || last_ == '\'' || last_ == '`') return true;
  return inline_ticks_odd_ && !line_is_fence_;
}

}  // namespace sluice::chat
