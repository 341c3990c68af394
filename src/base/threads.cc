#include "base/threads.h"

#include <sched.h>

#include <chrono>
#include <system_error>

#include "base/check.h"

namespace sluice {
namespace {

// A decode step has a few hundred regions of some 10 us each: a worker spins this long for the next
// one before it sleeps, because waking it costs more than the region (estimated; the wake is a
// futex call).
constexpr auto kSpin = std::chrono::microseconds(200);

int num_usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  if (num_threads <= 0) num_threads = num_usable_cores();
  if (num_threads < 1) num_threads = 1;
  threads_.reserve(static_cast<size_t>(num_threads - 1));
  try {
    for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error&) {
    // The system refuses more threads: those that started do the work, with the same results.
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int64_t num_tasks, TaskFn fn, void* context) {
  SLUICE_CHECK_LT(num_tasks, int64_t{1} << 32);
  if (num_tasks <= 0) return;
  if (threads_.empty() || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) fn(context, i, 0);
    return;
  }
  uint32_t generation;
  {
    std::lock_guard lock(mutex_);
    generation = generation_.load(std::memory_order_relaxed) + 1;
    // Close the cursor before the task changes: a worker late from the last run must not win a task
    // of this one by comparing against a cursor that is not yet replaced.
    cursor_.store((static_cast<uint64_t>(generation) << 32) | 0xffffffffu,
                  std::memory_order_release);
    fn_ = fn;
    context_ = context;
    // Released, and acquired in drain(): who sees the new count also sees the cursor closed, and then
    // cannot win with a cursor of the last run.
    num_tasks_.store(num_tasks, std::memory_order_release);
    num_done_.store(0, std::memory_order_relaxed);
    cursor_.store(static_cast<uint64_t>(generation) << 32, std::memory_order_release);
    generation_.store(generation, std::memory_order_release);
  }
  wake_.notify_all();
  drain(0, generation);
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  while (num_done_.load(std::memory_order_acquire) != num_tasks) {
    // Past the spin give the core away: with more workers than cores the last task may need this
    // one.
    if (std::chrono::steady_clock::now() < deadline) {
      cpu_relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::drain(int worker_idx, uint32_t generation) {
  for (;;) {
    uint64_t cursor = cursor_.load(std::memory_order_acquire);
    do {
      if (static_cast<uint32_t>(cursor >> 32) != generation) return;
      if (static_cast<int64_t>(cursor & 0xffffffffu) >=
          num_tasks_.load(std::memory_order_acquire)) {
        return;
      }
    } while (!cursor_.compare_exchange_weak(cursor, cursor + 1, std::memory_order_acq_rel));
    fn_(context_, static_cast<int64_t>(cursor & 0xffffffffu), worker_idx);
    num_done_.fetch_add(1, std::memory_order_acq_rel);
  }
}

void ThreadPool::work(int worker_idx) {
  uint32_t seen = 0;
  for (;;) {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    while (generation_.load(std::memory_order_acquire) == seen && !stop_.load()) {
      if (std::chrono::steady_clock::now() < deadline) {
        cpu_relax();
        continue;
      }
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return generation_.load() != seen || stop_.load(); });
    }
    if (stop_.load()) return;
    seen = generation_.load(std::memory_order_acquire);
    drain(worker_idx, seen);
  }
}

}  // namespace sluice
