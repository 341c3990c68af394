#pragma once

#include <chrono>
#include <cstdint>

namespace sluice {

/// One line on standard error that is drawn over itself: a bar, bytes and GB/s since `start`. Silent unless that is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::chrono::steady_clock::time_point start);
  void show(int64_t done, int64_t total);
  /// Ends the line, if there is one.
  void finish();

 private:
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_;
  bool is_terminal_;
  bool is_open_ = false;
};

}  // namespace sluice
