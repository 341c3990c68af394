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

/// `sluice bench prefill`: prompts to their first token, cold or behind what a session holds, and the steps of some taken apart.
struct BenchPrefillOptions {
  std::string size;            // 0.8B, 2B, 4B, 9B, 27B
  std::string format = "fp8";  // or bf16
  std::string device = "cuda";
  std::vector<int64_t> cold = {512, 4096, 8192, 32768, 131072};
  std::vector<int64_t> append = {16, 64, 200, 512, 2048};
  std::vector<int64_t> past = {8192, 32768};  // of each append
  std::string prefill_math = "exact";         // or fp8
  uint64_t seed = 1;
  int num_runs = 5;  // of a case; long ones get fewer
  int num_cuts = 4;  // ways to run the signature's prompt
  /// Takes every prompt's last step apart, not a few.
  bool all_parts = false;
};
/// Prints tables. Exit code 1 when a step failed, a cut changed the signature, or the signature changed while it ran.
int run_bench_prefill(const BenchPrefillOptions& options);

}  // namespace sluice
