#include "chat/tool_call_id.h"

#include <unistd.h>

#include <string_view>

namespace sluice::chat {
namespace {

constexpr std::string_view kAlphabet =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kIdChars = 24;
// Larger bytes are drawn again, so that every character is equally likely.
constexpr unsigned kFairBytes = 256 / kAlphabet.size() * kAlphabet.size();

}  // namespace

Result<RandomBytes> system_random_bytes() {
  unsigned char probe = 0;
  if (::getentropy(&probe, 1) != 0)
    return io_error("the system gives no random bytes (getentropy)");
  return RandomBytes([](unsigned char* out, size_t num_bytes) {
    while (num_bytes > 0) {
      const size_t chunk = num_bytes < 256 ? num_bytes : 256;  // getentropy's own limit
      SLUICE_CHECK_EQ(::getentropy(out, chunk), 0);
      out += chunk;
      num_bytes -= chunk;
    }
  });
}

std::string make_tool_call_id(const RandomBytes& random) {
  std::string id = "call_";
  const size_t length = id.size() + kIdChars;
  while (id.size() < length) {
    unsigned char bytes[32];
    random(bytes, sizeof(bytes));
    for (const unsigned char byte : bytes) {
      if (byte < kFairBytes && id.size() < length) id.push_back(kAlphabet[byte % kAlphabet.size()]);
    }
  }
  return id;
}

}  // namespace sluice::chat
