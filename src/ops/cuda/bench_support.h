#pragma once
// What a benchmark needs of the GPU besides the ops: values made in place, yardsticks, a clock, and a step's launches one by one. Nothing of CUDA's
// own is named here, so that a build without it compiles the callers too; there check_gpu() is what fails.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/status.h"
#include "base/weight_view.h"

namespace sluice::cuda {

/// kUnsupported says what is missing. All else here: Pre: it returned ok.
Status check_gpu();
/// "NVIDIA H200, 132 SMs, compute capability 9.0, CUDA 13.0".
std::string describe_gpu();

// Values from a counter: equal for equal keys, whatever the GPU. `sigma` is their standard deviation; none is beyond 3.5 of it.
void fill_normal(bf16* to, int64_t count, uint64_t key, float sigma);
void fill_normal(float* to, int64_t count, uint64_t key, float sigma);

/// A random weight as pack_weight would leave it (packed.h): FP8 codes with a scale a block, or f16 with a factor a row.
/// `to` has synthetic_weight_bytes of the backend's memory. Pre: num_out % 8 == 0, num_in % 128 == 0.
size_t synthetic_weight_bytes(WeightFormat format, int64_t num_out, int64_t num_in);
WeightView make_synthetic_weight(WeightFormat format, int64_t num_out, int64_t num_in, uint64_t key,
                                 float sigma, std::byte* to);

/// GB/s of reading a buffer larger than the L2 once, median of several times: by rings of bulk copies, as the projections' kernels read, and by loads of 16 bytes a thread.
struct ReadSpeed {
  double bulk_gbs = 0.0;
  double plain_gbs = 0.0;
};
/// kResourceExhausted when the buffer does not fit.
Result<ReadSpeed> measure_read_speed();

/// Returns when the GPU has done all that it was given.
void await_gpu();

/// Marks among the work given to the GPU.
class GpuClock {
 public:
  GpuClock();
  ~GpuClock();
  GpuClock(const GpuClock&) = delete;
  GpuClock& operator=(const GpuClock&) = delete;

  void mark();
  /// Microseconds from each mark to the next, behind all of them. The marks are gone afterwards.
  std::vector<double> intervals_us();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A kernel launch of a step.
struct StepLaunch {
  std::string kernel;  // the function's whole name
  int grid = 0;        // blocks
  int threads = 0;     // of a block
  int smem_bytes = 0;  // dynamic
  /// It may begin before the one ahead has ended (pdl.cuh).
  bool is_chained = false;
};

/// A step's launches in order, caught while its ops are called, and run again as often as is wanted.
class StepLaunches {
 public:
  /// What is launched from here on is caught and not run.
  static void begin_catching();
  static int num_caught();
  /// Runs what was caught, once. Pre: every launch was behind the one before.
  static std::unique_ptr<StepLaunches> end_catching();
  ~StepLaunches();
  StepLaunches(const StepLaunches&) = delete;
  StepLaunches& operator=(const StepLaunches&) = delete;

  std::span<const StepLaunch> all() const;
  /// Microseconds of a chain of these launches alone, median of num_rounds. They keep the way in which they follow one another. The step block stays as the
  /// last step left it.
  double chain_us(std::span<const int> launches, int num_rounds) const;

 private:
  StepLaunches();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::cuda
