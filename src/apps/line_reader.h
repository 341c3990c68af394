#pragma once

#include <optional>
#include <string>

namespace sluice {

/// Lines from a descriptor. An interrupt (interrupt.h) ends the wait.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  /// Without its end. Nothing at the end of the input, after an interrupt, and for a line over 1 MiB.
  std::optional<std::string> next();

 private:
  int fd_;
  std::string buffer_;
};

}  // namespace sluice
