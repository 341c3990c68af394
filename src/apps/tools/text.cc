#include "apps/tools/text.h"

#include "base/utf8.h"

namespace sluice {
namespace {

/// C0, DEL and C1, which terminals act on, and the embeddings, overrides and isolates that show text
/// in another order than it has.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x202a && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069);
}

/// Calls fn(scalar, its bytes) over `bytes`; what is not UTF-8 comes as U+FFFD.
template <typename Fn>
void for_each_scalar(std::string_view bytes, Fn fn) {
  for (size_t pos = 0; pos < bytes.size();) {
    const Utf8Step step = utf8_step(bytes, pos);
    if (step.kind == Utf8Step::Kind::kScalar) {
      fn(step.scalar, bytes.substr(pos, step.length));
    } else {
      fn(char32_t{0xfffd}, kReplacementCharacter);
    }
    pos += step.length;
  }
}

}  // namespace

bool is_text(std::string_view bytes) {
  return bytes.find('\0') == bytes.npos && is_valid_utf8(bytes);
}

std::string_view cut_text(std::string_view text, size_t num_bytes_max) {
  if (text.size() <= num_bytes_max) return text;
  size_t end = num_bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80) --end;
  return text.substr(0, end);
}

std::string printable_line(std::string_view bytes) {
  std::string out;
  for_each_scalar(bytes, [&](char32_t c, std::string_view spelled) {
    out += is_control(c) || c == 0x2028 || c == 0x2029 ? std::string_view("?") : spelled;
  });
  return out;
}

std::string printable_text(std::string_view bytes) {
  std::string out;
  for_each_scalar(bytes, [&](char32_t c, std::string_view spelled) {
    if (c == '\n' || c == '\t' || !is_control(c)) out += spelled;
  });
  return out;
}

}  // namespace sluice
