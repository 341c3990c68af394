#include "base/fd.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

int UniqueFd::release() {
  return std::exchange(fd_, -1);
}

Status write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("{}", std::strerror(errno));
    content.remove_prefix(static_cast<size_t>(n));
  }
  return Status();
}

Result<std::string> read_all(const UniqueFd& fd, size_t num_bytes_max) {
  std::string content;
  char chunk[size_t{64} << 10];
  for (;;) {
    const ssize_t n = ::read(fd.get(), chunk, sizeof(chunk));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("{}", std::strerror(errno));
    if (n == 0) return content;
    content.append(chunk, static_cast<size_t>(n));
    if (content.size() > num_bytes_max) return resource_exhausted("over {} bytes", num_bytes_max);
  }
}

}  // namespace sluice
