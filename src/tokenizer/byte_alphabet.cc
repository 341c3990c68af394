#include "tokenizer/byte_alphabet.h"

#include "base/utf8.h"

namespace sluice {

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(kNone);
  size_t next = 0x100;
  for (size_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    byte_of_[is_printable ? byte : next++] = static_cast<int16_t>(byte);
  }
}

std::optional<std::string> ByteAlphabet::bytes(std::string_view text) const {
  std::string out;
  size_t length = 0;
  for (size_t pos = 0; pos < text.size(); pos += length) {
    const char32_t c = utf8_scalar(text.data() + pos, &length);
    if (c >= byte_of_.size() || byte_of_[c] == kNone) return std::nullopt;
    out.push_back(static_cast<char>(byte_of_[c]));
  }
  return out;
}

}  // namespace sluice
