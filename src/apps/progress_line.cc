#include "apps/progress_line.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "model/report.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

ProgressLine::ProgressLine(Clock::time_point start)
    : start_(start), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(int64_t done, int64_t total) {
  constexpr double kRedrawSeconds = 0.1;
  if (!is_terminal_ || (done < total && seconds_since(drawn_) < kRedrawSeconds)) return;
  drawn_ = Clock::now();
  constexpr int kWidth = 40;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  const auto filled = static_cast<size_t>(share * kWidth);
  const double rate = static_cast<double>(done) / 1e9 / seconds_since(start_);
  std::fprintf(stderr, "\r[%s%s] %3.0f %%  %s of %s  %.2f GB/s ", std::string(filled, '#').c_str(),
               std::string(kWidth - filled, ' ').c_str(), 100.0 * share,
               decimal_bytes(done).c_str(), decimal_bytes(total).c_str(), rate);
  is_open_ = true;
}

void ProgressLine::finish() {
  if (is_open_) std::fputc('\n', stderr);
  is_open_ = false;
}

}  // namespace sluice
