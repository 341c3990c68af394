#include "base/check.h"

#include <unistd.h>

#include <cstdlib>

namespace sluice {

void check_failed(const char* file, int line, std::string_view what) {
  const std::string text = fmt::format("{}:{}: check failed: {}\n", file, line, what);
  // write(2), not stdio: the process may be in any state.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  std::abort();
}

}  // namespace sluice
