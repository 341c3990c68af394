#include "apps/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace sluice {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);
/// Readable after a signal: any thread may get it, and it may come just before a wait begins.
std::atomic<int> wake_fd{-1};

void on_signal(int) {
  if (requested.exchange(true)) ::_exit(kInterruptedExitCode);
  const int saved_errno = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_fd.load(), &one, sizeof(one));
  errno = saved_errno;
}

}  // namespace

void catch_interrupts() {
  if (wake_fd.load() < 0) wake_fd.store(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

bool interrupt_requested() {
  return requested.load();
}

bool take_interrupt() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_fd.load(), &count, sizeof(count));
  return requested.exchange(false);
}

bool wait_readable(int fd) {
  for (;;) {
    pollfd waits[] = {{fd, POLLIN, 0}, {wake_fd.load(), POLLIN, 0}};
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) return true;  // the read will tell
    if (interrupt_requested()) return false;
    if (waits[0].revents != 0) return true;
  }
}

}  // namespace sluice
