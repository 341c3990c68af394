#pragma once
// Ids of tool calls.

#include <functional>
#include <string>

#include "base/status.h"

namespace sluice::chat {

/// Fills the bytes from a cryptographic source. Never the sampler's generator: ids must not repeat
/// when its seed does.
using RandomBytes = std::function<void(unsigned char* out, size_t num_bytes)>;

/// The operating system's source.
Result<RandomBytes> system_random_bytes();

/// "call_" and 24 characters of [0-9A-Za-z]: 142 bits, so ids are unique over all conversations
/// without being recorded.
std::string make_tool_call_id(const RandomBytes& random);

}  // namespace sluice::chat
