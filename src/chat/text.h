#pragma once
// Text as Python and the templates treat it.

#include <string>
#include <string_view>

namespace sluice::chat {

/// Bytes of the white space character that starts (ends) `text`, or 0. White space is what Python 3's
/// str.isspace() takes for it, as UTF-8.
size_t leading_space_bytes(std::string_view text);
size_t trailing_space_bytes(std::string_view text);

/// str.strip()
std::string_view strip(std::string_view text);
/// str.lstrip()
std::string_view lstrip(std::string_view text);

inline bool is_ascii_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// Without spaces, tabs and newlines on both sides.
std::string_view strip_ascii(std::string_view text);

}  // namespace sluice::chat
