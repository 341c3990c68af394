#include "apps/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace sluice {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int) {
  if (requested.exchange(true)) ::_exit(kInterruptedExitCode);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);  // no SA_RESTART: waiting for a line must end
}

bool interrupt_requested() {
  return requested.load();
}

bool take_interrupt() {
  return requested.exchange(false);
}

}  // namespace sluice
