#pragma once
// GPT-2's spelling of bytes as printable characters, which byte-level vocabularies are written in.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

/// 188 printable bytes are themselves, the other 68 are U+0100 and up, in ascending order.
class ByteAlphabet {
 public:
  ByteAlphabet();
  /// The bytes that `text` stands for; nothing when a character is outside the alphabet. Pre: valid UTF-8.
  std::optional<std::string> bytes(std::string_view text) const;

 private:
  static constexpr int16_t kNone = -1;
  std::array<int16_t, 0x144> byte_of_;  // by code point
};

}  // namespace sluice
