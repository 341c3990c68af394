#pragma once
// The yardstick of memory-bound kernels: how fast this machine reads.

#include <span>

#include "base/threads.h"

namespace sluice::bench {

/// Seconds one read of all of `bytes` takes on all threads of the pool, each a contiguous share at a time.
double read_all(ThreadPool& pool, std::span<const std::byte> bytes);
/// Seconds on a monotonic clock.
double now();

}  // namespace sluice::bench
