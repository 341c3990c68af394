#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

/// XXH3-128 as 32 lowercase hex digits. Names content; no protection against somebody who wants a collision.
std::string content_hash(std::span<const std::byte> bytes);
std::string content_hash(std::string_view text);

}  // namespace sluice
