#pragma once
// UTF-8, as Unicode's "maximal subpart" rule reads it: what Python's errors="replace" and Rust's from_utf8_lossy do.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Step {
  enum class Kind : uint8_t {
    kScalar,     // a whole scalar value
    kInvalid,    // `length` bytes that stand for one U+FFFD, whatever follows
    kTruncated,  // the text ends inside what may still become a scalar value
  };
  Kind kind;
  uint8_t length;  // bytes, 1..4
  char32_t scalar;
};

/// Reads one step at text[pos]. Pre: pos < text.size().
Utf8Step utf8_step(std::string_view text, size_t pos);

/// Reads one scalar of valid UTF-8. Pre: p is at the start of a scalar value of valid text.
inline char32_t utf8_scalar(const char* p, size_t* length) {
  const auto byte = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t b = byte(0);
  if (b < 0x80) {
    *length = 1;
    return b;
  }
  if (b < 0xE0) {
    *length = 2;
    return (b & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (b < 0xF0) {
    *length = 3;
    return (b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  *length = 4;
  return (b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

/// Index of the first byte >= 0x80 at or after `pos`, or text.size().
size_t skip_ascii(std::string_view text, size_t pos);
bool is_valid_utf8(std::string_view text);
void append_utf8(char32_t scalar, std::string* out);
/// Appends `text` with one U+FFFD for each maximal invalid part; a truncated end counts as one.
void append_lossy_utf8(std::string_view text, std::string* out);
/// The number of bytes at the end of `text` that may still become a scalar value (0..3).
size_t truncated_utf8_tail(std::string_view text);

}  // namespace sluice
