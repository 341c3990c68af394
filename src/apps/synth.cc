#include "apps/synth.h"

#include <chrono>
#include <cstdio>

#include "apps/model_flags.h"
#include "apps/progress_line.h"
#include "model/family.h"
#include "model/report.h"
#include "model/synth.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status write_model(const SynthOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const WeightFormat linears, weight_format(options.format));
  SLUICE_ASSIGN_OR_RETURN(SynthSpec spec, synth_spec(options.size, linears, options.seed));
  if (options.num_layers > 0) {
    SLUICE_RETURN_IF_ERROR(keep_first_layers(&spec.config, options.num_layers)
                               .with_context(fmt::format("--layers, size {}", options.size)));
  }
  spec.overwrite = options.force;
  spec.num_threads = options.num_threads;
  const Clock::time_point start = Clock::now();
  ProgressLine line(start);
  const Result<SynthSummary> summary = write_synthetic_checkpoint(
      spec, options.dir, [&](int64_t done, int64_t total) { line.show(done, total); });
  line.finish();
  if (!summary.ok()) return summary.status();
  std::printf("%s: %lld tensors in %lld files, %s, %.1f s; no tokenizer\n", options.dir.c_str(),
              static_cast<long long>(summary->num_tensors),
              static_cast<long long>(summary->num_files), decimal_bytes(summary->num_bytes).c_str(),
              seconds_since(start));
  return Status();
}

}  // namespace

Result<WeightFormat> weight_format(std::string_view name) {
  if (name == "bf16") return WeightFormat::kBf16;
  if (name == "fp8") return WeightFormat::kFp8Block128;
  return invalid_argument("no format \"{}\"; expected bf16 or fp8", name);
}

int run_synth(const SynthOptions& options) {
  return exit_code_of(write_model(options));
}

}  // namespace sluice
