#pragma once
// Bytes of unknown origin as text: what tools read, and what goes to a terminal.

#include <string>
#include <string_view>

namespace sluice {

/// Valid UTF-8 without a NUL: what a tool calls a text file.
bool is_text(std::string_view bytes);

/// The longest prefix of valid UTF-8 `text` that has at most `num_bytes_max` bytes and ends on a
/// code point.
std::string_view cut_text(std::string_view text, size_t num_bytes_max);

/// One line for people and models: what is not UTF-8 becomes U+FFFD, control characters (line ends
/// too) become '?'.
std::string printable_line(std::string_view bytes);

/// Text for a terminal: as above, but newline and tab stay and other control characters are dropped,
/// so that no model and no file can move the cursor, set colours or turn the order of letters.
std::string printable_text(std::string_view bytes);

}  // namespace sluice
