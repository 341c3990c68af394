#include "decode/stop.h"

#include <algorithm>

namespace sluice {

Result<StopStringMatcher> StopStringMatcher::create(std::vector<std::string> stop_strings) {
  if (stop_strings.size() > kMaxStrings) {
    return invalid_argument("{} stop strings; at most {} are allowed", stop_strings.size(),
                            kMaxStrings);
  }
  for (const std::string& stop : stop_strings) {
    if (stop.empty()) return invalid_argument("a stop string is empty");
    if (stop.size() > kMaxBytes) {
      return invalid_argument("a stop string has {} bytes; at most {} are allowed", stop.size(),
                              kMaxBytes);
    }
  }
  StopStringMatcher matcher;
  matcher.stop_strings_ = std::move(stop_strings);
  return matcher;
}

bool StopStringMatcher::push(std::string_view text, std::string* out) {
  if (stopped_) return true;
  held_ += text;
  size_t match = std::string::npos;
  for (const std::string& stop : stop_strings_) match = std::min(match, held_.find(stop));
  if (match != std::string::npos) {
    out->append(held_, 0, match);
    held_.clear();
    stopped_ = true;
    return true;
  }
  // Hold back the longest suffix that begins a stop string.
  size_t keep = 0;
  for (const std::string& stop : stop_strings_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n))
        keep = n;
    }
  }
  out->append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStringMatcher::finish(std::string* out) {
  *out += held_;
  held_.clear();
}

}  // namespace sluice
