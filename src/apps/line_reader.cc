#include "apps/line_reader.h"

#include <unistd.h>

#include <utility>

#include "apps/interrupt.h"

namespace sluice {

constexpr size_t kLineBytesMax = size_t{1} << 20;

std::optional<std::string> LineReader::next() {
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (buffer_.size() > kLineBytesMax) return std::nullopt;
    if (!wait_readable(fd_)) return std::nullopt;
    char chunk[4096];
    const ssize_t n = ::read(fd_, chunk, sizeof(chunk));
    if (n < 0) return std::nullopt;
    if (n == 0) {
      if (buffer_.empty()) return std::nullopt;
      return std::exchange(buffer_, std::string());
    }
    buffer_.append(chunk, static_cast<size_t>(n));
  }
}

}  // namespace sluice
