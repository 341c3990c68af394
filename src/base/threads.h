#pragma once
// A pool that runs numbered, independent tasks. Which thread runs a task never changes a result,
// so every kernel's bits are the same for any thread count.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice {

class ThreadPool {
 public:
  /// `num_threads` workers in all, the caller included; 0 means one per core this process may use.
  /// Fewer where the system refuses threads: see num_threads().
  explicit ThreadPool(int num_threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  /// Runs fn(task_idx, worker_idx) for every task_idx in [0, num_tasks), returns when all are done.
  /// 0 <= worker_idx < num_threads(); a worker runs one task at a time. Not reentrant; one caller
  /// at a time. `fn` must not throw. Tasks are handed out in order, so equal tasks balance
  /// themselves.
  template <typename Fn>
  void parallel_for(int64_t num_tasks, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run(
        num_tasks,
        [](void* context, int64_t task, int worker) { (*static_cast<F*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using TaskFn = void (*)(void* context, int64_t task, int worker);
  void run(int64_t num_tasks, TaskFn fn, void* context);
  void work(int worker_idx);
  void drain(int worker_idx, uint32_t generation);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_;
  TaskFn fn_ = nullptr;
  void* context_ = nullptr;
  std::atomic<int64_t> num_tasks_{0};
  // High half: generation; low half: next task. One word, so a late worker cannot take a task of
  // the next run.
  std::atomic<uint64_t> cursor_{0};
  std::atomic<int64_t> num_done_{0};
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace sluice
