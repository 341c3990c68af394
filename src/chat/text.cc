#include "chat/text.h"

#include <array>

namespace sluice::chat {
namespace {

// Beyond ASCII: U+0085, 00A0, 1680, 2000-200A, 2028, 2029, 202F, 205F, 3000.
constexpr std::array<std::string_view, 19> kWideSpaces = {
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

// 0x1c to 0x1f are separators that Python counts in; JSON and C do not.
bool is_narrow_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

}  // namespace

size_t leading_space_bytes(std::string_view text) {
  if (text.empty()) return 0;
  if (is_narrow_space(text.front())) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

size_t trailing_space_bytes(std::string_view text) {
  if (text.empty()) return 0;
  if (is_narrow_space(text.back())) return 1;
  for (const std::string_view space : kWideSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

std::string_view lstrip(std::string_view text) {
  while (const size_t n = leading_space_bytes(text)) text.remove_prefix(n);
  return text;
}

std::string_view strip(std::string_view text) {
  text = lstrip(text);
  while (const size_t n = trailing_space_bytes(text)) text.remove_suffix(n);
  return text;
}

std::string_view strip_ascii(std::string_view text) {
  while (!text.empty() && is_ascii_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_ascii_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace sluice::chat
