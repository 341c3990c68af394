#pragma once

namespace sluice {

/// From now on Ctrl-C sets a flag; a second one before it was taken ends the process with status 130.
void catch_interrupts();
bool interrupt_requested();
/// Takes the request; true when there was one.
bool take_interrupt();
/// Waits until `fd` can be read (or has ended). False when an interrupt was requested, also by a
/// signal that came before the wait or went to another thread.
bool wait_readable(int fd);

inline constexpr int kInterruptedExitCode = 130;  // 128 + SIGINT, as shells have it

}  // namespace sluice
