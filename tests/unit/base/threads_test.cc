#include "base/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
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

/// Address space for no further thread's stack.
void leave_no_room_for_stacks() {
  long pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  constexpr rlim_t kRoom = rlim_t{2} << 20;
  const rlim_t size = static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const rlimit limit = {size + kRoom, size + kRoom};
  ::setrlimit(RLIMIT_AS, &limit);
}

TEST(ThreadPool, WorksWithFewerThreadsWhereTheSystemRefusesMore) {
  const auto in_child = [] {
    leave_no_room_for_stacks();
    ThreadPool pool(8);
    std::atomic<int> sum{0};
    pool.parallel_for(10, [&](int64_t, int) { sum.fetch_add(1); });
    std::_Exit(pool.num_threads() < 8 && sum.load() == 10 ? 0 : 1);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sluice
