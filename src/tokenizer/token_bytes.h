#pragma once
// The bytes of every token, one after another in one piece of memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Pre: less than 4 GB in all.
class TokenBytes {
 public:
  void reserve(size_t num_tokens, size_t num_bytes) {
    ends_.reserve(num_tokens);
    bytes_.reserve(num_bytes);
  }
  void push_back(std::string_view token) {
    bytes_.append(token);
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  size_t size() const { return ends_.size(); }
  /// Pre: 0 <= id < size(). Valid until the next push_back.
  std::string_view operator[](int32_t id) const {
    const auto i = static_cast<size_t>(id);
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

}  // namespace sluice
