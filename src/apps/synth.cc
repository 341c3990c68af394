#include "apps/synth.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "apps/model_flags.h"
#include "model/family.h"
#include "model/report.h"
#include "model/synth.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One line that is drawn over itself; silent unless standard error is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(Clock::time_point start)
      : start_(start), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

  void show(int64_t done, int64_t total) {
    constexpr double kRedrawSeconds = 0.1;
    if (!is_terminal_ || (done < total && seconds_since(drawn_) < kRedrawSeconds)) return;
    drawn_ = Clock::now();
    constexpr int kWidth = 40;
    const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
    const auto filled = static_cast<size_t>(share * kWidth);
    const double rate = static_cast<double>(done) / 1e9 / seconds_since(start_);
    std::fprintf(stderr, "\r[%s%s] %3.0f %%  %s of %s  %.2f GB/s ",
                 std::string(filled, '#').c_str(), std::string(kWidth - filled, ' ').c_str(),
                 100.0 * share, decimal_bytes(done).c_str(), decimal_bytes(total).c_str(), rate);
    is_open_ = true;
  }

  void finish() {
    if (is_open_) std::fputc('\n', stderr);
    is_open_ = false;
  }

 private:
  Clock::time_point start_;
  Clock::time_point drawn_;
  bool is_terminal_;
  bool is_open_ = false;
};

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
