#pragma once
// The yardstick of memory-bound kernels: how fast this machine reads.

#include <span>

#include "base/threads.h"

namespace sluice::bench {

/// In address order, or 16 pages side by side: the hardware follows one stream a page, so this reads faster on some
/// machines. The yardstick is the better of the two.
enum class ReadPattern { kSequential, kSixteenPages };

/// Reads all of `bytes` on all threads of the pool, a MB each at a time.
/// Pre: a whole number of MB.
void read_all(ThreadPool& pool, std::span<const std::byte> bytes, ReadPattern pattern);
/// Seconds on a monotonic clock.
double now();

}  // namespace sluice::bench
