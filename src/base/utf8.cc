#include "base/utf8.h"

#include <bit>
#include <cstring>

namespace sluice {
namespace {

// The second byte's range depends on the first: no overlong forms, no surrogates, nothing above U+10FFFF.
struct LeadByte {
  uint8_t length = 0;  // 0: starts nothing
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

LeadByte lead_byte(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[pos + i]); };
  if (byte(0) < 0x80) return {Utf8Step::Kind::kScalar, 1, byte(0)};
  const LeadByte lead = lead_byte(byte(0));
  if (lead.length == 0) return {Utf8Step::Kind::kInvalid, 1, 0};
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (pos + i == text.size()) return {Utf8Step::Kind::kTruncated, i, 0};
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte(i) < low || byte(i) > high) return {Utf8Step::Kind::kInvalid, i, 0};
  }
  size_t length = 0;
  const char32_t scalar = utf8_scalar(text.data() + pos, &length);
  return {Utf8Step::Kind::kScalar, lead.length, scalar};
}

size_t skip_ascii(std::string_view text, size_t pos) {
  static_assert(std::endian::native == std::endian::little);
  for (; pos + 8 <= text.size(); pos += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    word &= 0x8080808080808080;
    if (word != 0) return pos + static_cast<size_t>(std::countr_zero(word)) / 8;
  }
  while (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) ++pos;
  return pos;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = skip_ascii(text, 0); pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (step.kind != Utf8Step::Kind::kScalar) return false;
    pos += step.length;
    if (pos < text.size() && static_cast<uint8_t>(text[pos]) < 0x80) pos = skip_ascii(text, pos);
  }
  return true;
}

void append_utf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
    return put(0x80 | (c & 0x3F));
  }
  if (c < 0x10000) {
    put(0xE0 | c >> 12);
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
  }
  put(0x80 | (c >> 6 & 0x3F));
  put(0x80 | (c & 0x3F));
}

void append_lossy_utf8(std::string_view text, std::string* out) {
  size_t copied = 0;
  for (size_t pos = skip_ascii(text, 0); pos < text.size();) {
    const Utf8Step step = utf8_step(text, pos);
    if (step.kind != Utf8Step::Kind::kScalar) {
      out->append(text.substr(copied, pos - copied)).append(kReplacementCharacter);
      copied = pos + step.length;
    }
    pos += step.length;
  }
  out->append(text.substr(copied));
}

size_t truncated_utf8_tail(std::string_view text) {
  for (size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const size_t pos = text.size() - length;
    if ((static_cast<uint8_t>(text[pos]) & 0xC0) == 0x80) continue;  // look for the lead byte
    const Utf8Step step = utf8_step(text, pos);
    return step.kind == Utf8Step::Kind::kTruncated && step.length == length ? length : 0;
  }
  return 0;
}

}  // namespace sluice
