#pragma once
// File descriptors: owned, read whole and written whole.

#include <string>
#include <string_view>

#include "base/status.h"

namespace sluice {

/// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int release();

 private:
  int fd_ = -1;
};

/// kIo with the system's word.
Status write_all(int fd, std::string_view content);
/// At most `num_bytes_max` bytes from the descriptor's position; kResourceExhausted when there are
/// more.
Result<std::string> read_all(const UniqueFd& fd, size_t num_bytes_max);

}  // namespace sluice
