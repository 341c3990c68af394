#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace sluice {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceInManyShortRegions) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 3000; ++round) {
      const int num_tasks = round % 17;
      std::vector<std::atomic<int>> hits(static_cast<size_t>(num_tasks));
      pool.parallel_for(num_tasks, [&](int64_t task, int worker) {
        EXPECT_LT(worker, num_threads);
        hits[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
    }
  }
}

TEST(ThreadPool, AWorkerRunsOneTaskAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  pool.parallel_for(500, [&](int64_t, int worker) {
    EXPECT_EQ(busy[static_cast<size_t>(worker)].fetch_add(1), 0);
    busy[static_cast<size_t>(worker)].fetch_sub(1);
  });
}

}  // namespace
}  // namespace sluice
