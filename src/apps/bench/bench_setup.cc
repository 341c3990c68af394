#include "apps/bench/bench_setup.h"

#include <cstdio>

#include "apps/bench/step_traffic.h"
#include "apps/synth.h"
#include "model/report.h"

namespace sluice {

void print_bench(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string count_text(int64_t count) {
  return count > 0 && count % 1024 == 0 ? fmt::format("{}k", count / 1024)
                                        : fmt::format("{}", count);
}

Result<BenchSetup> BenchSetup::open(const BenchSetupOptions& options) {
  if (options.device != "cuda") {
    return unsupported(
        "--device {}: synthetic weights are made on a GPU; expected cuda (for CPUs see bench/step)",
        options.device);
  }
  SLUICE_ASSIGN_OR_RETURN(const WeightFormat format, weight_format(options.format));
  SLUICE_RETURN_IF_ERROR(cuda::check_gpu().with_context("--device cuda"));
  BenchSetup setup;
  SLUICE_ASSIGN_OR_RETURN(setup.backend_, choose_backend(options.device, "", options.prefill_math));
  print_bench(fmt::format("gpu         {}\n", cuda::describe_gpu()));
  SLUICE_ASSIGN_OR_RETURN(setup.speed_, cuda::measure_read_speed());
  print_bench(
      fmt::format("reads       {:.0f} GB/s by bulk copies, {:.0f} GB/s by loads of 16 bytes\n",
                  setup.speed_.bulk_gbs, setup.speed_.plain_gbs));
  SLUICE_ASSIGN_OR_RETURN(setup.model_, SyntheticModel::create(options.size, format, options.seed,
                                                               *setup.backend_.ops));
  print_bench(fmt::format(
      "model       synthetic {} in {}, seed {}: {} of weights, {} read by a step\n", options.size,
      options.format, options.seed, decimal_bytes(static_cast<int64_t>(setup.model_->num_bytes())),
      decimal_bytes(all_weight_bytes(setup.weights()))));
  return setup;
}

}  // namespace sluice
