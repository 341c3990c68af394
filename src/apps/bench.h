#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// `sluice bench step`: decode steps of a published size on weights that are made on the GPU.
struct BenchStepOptions {
  std::string size;            // 0.8B, 2B, 4B, 9B, 27B
  std::string format = "fp8";  // or bf16
  std::string device = "cuda";
  std::vector<int64_t> contexts = {1024, 8192, 32768, 131072};
  std::vector<int32_t> rows = {1, 2, 4, 8, 16, 32, 64};
  uint64_t seed = 1;
  int num_steps = 30;  // timed for each number
};
/// Prints tables. Exit code 1 when a step failed or the greedy tokens changed while it ran.
int run_bench_step(const BenchStepOptions& options);

/// Of --contexts: the family's limit, and the rows of the largest step, which must fit the shortest context.
inline constexpr int64_t kBenchContextMax = 262144;
inline constexpr int64_t kBenchRowsMax = 64;

}  // namespace sluice
