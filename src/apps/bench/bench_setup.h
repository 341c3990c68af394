#pragma once
// What the GPU's benchmarks begin with.

#include "apps/bench/synthetic_model.h"
#include "engine/backend.h"
#include "ops/cuda/bench_support.h"

namespace sluice {

struct BenchSetupOptions {
  std::string size;    // published
  std::string format;  // bf16 or fp8
  std::string device;  // cuda; anything else is refused
  uint64_t seed = 0;
  std::string prefill_math = "exact";
};

class BenchSetup {
 public:
  /// Opens the GPU, measures its memory, makes the model, and prints what it found.
  static Result<BenchSetup> open(const BenchSetupOptions& options);

  const Backend& backend() const { return backend_; }
  const ModelWeights& weights() const { return model_->weights(); }
  /// The yardstick: GB/s of the better way to read.
  double gbs() const { return std::max(speed_.bulk_gbs, speed_.plain_gbs); }

 private:
  BenchSetup() = default;
  Backend backend_;
  cuda::ReadSpeed speed_;
  std::unique_ptr<SyntheticModel> model_;
};

/// To standard output, at once.
void print_bench(const std::string& text);
/// "8k" for 8192, "200" for 200.
std::string count_text(int64_t count);

}  // namespace sluice
