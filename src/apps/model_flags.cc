#include "apps/model_flags.h"

#include <cstdio>
#include <optional>
#include <system_error>

#include "apps/interrupt.h"
#include "apps/progress_line.h"
#include "apps/tools/text.h"

namespace sluice {
namespace {

constexpr int kAncestorsMax = 6;

/// Weights below this are at the GPU before anybody reads a line.
constexpr size_t kShownBytesMin = size_t{1} << 30;

bool is_model(const Path& dir) {
  std::error_code error;
  return std::filesystem::is_regular_file(dir / "config.json", error);
}

}  // namespace

Result<Path> embedded_model_dir() {
  std::error_code error;
  const Path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return io_error("cannot tell where this program lies: {}", error.message());
  Path dir = binary.parent_path();
  if (is_model(dir / "../share/sluice/tiny-agent")) return dir / "../share/sluice/tiny-agent";
  for (int i = 0; i < kAncestorsMax; ++i, dir = dir.parent_path()) {
    if (is_model(dir / "models/tiny-agent")) return dir / "models/tiny-agent";
  }
  return not_found(
      "the embedded model was not found: no models/tiny-agent/config.json in a folder above {}; "
      "give --model DIR",
      binary.string());
}

Result<Path> model_dir(const ModelFlags& flags) {
  if (!flags.model_dir.empty()) return Path(flags.model_dir);
  return embedded_model_dir();
}

Result<std::unique_ptr<Engine>> open_engine(const ModelFlags& flags, bool ids_only) {
  EngineOptions options;
  options.ids_only = ids_only;
  options.device = flags.device;
  options.isa = flags.isa;
  options.prefill_math = flags.prefill_math;
  options.num_threads = flags.num_threads;
  options.context_max = flags.context_max;
  SLUICE_ASSIGN_OR_RETURN(options.model_dir, model_dir(flags));
  std::optional<ProgressLine> line;
  options.on_placing = [&line](const PlacingProgress& progress) {
    if (progress.num_bytes_total < kShownBytesMin) return;
    if (!line) line.emplace(std::chrono::steady_clock::now());
    line->show(static_cast<int64_t>(progress.num_bytes),
               static_cast<int64_t>(progress.num_bytes_total));
  };
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (line) line->finish();
  if (!engine.ok()) return engine;
  for (const std::string& warning : (*engine)->diagnostics().warnings) {
    std::fprintf(stderr, "sluice: warning: %s\n", printable_line(warning).c_str());
  }
  return engine;
}

Result<Backend> backend_named(const std::string& name) {
  if (name == "cuda" || name == "cpu") return choose_backend(name, "");
  return choose_backend("cpu", name);
}

SamplingParams sampling_params(const SamplingFlags& flags, const ModelFlags& model,
                               const GenerationConfig& defaults) {
  SamplingParams params;
  if (!model.model_dir.empty() && defaults.do_sample) {
    params.temperature = defaults.temperature;
    params.top_k = defaults.top_k;
    params.top_p = defaults.top_p;
  }
  params.temperature = flags.temperature.value_or(params.temperature);
  params.top_k = flags.top_k.value_or(params.top_k);
  params.top_p = flags.top_p.value_or(params.top_p);
  params.min_p = flags.min_p.value_or(params.min_p);
  params.presence_penalty = flags.presence_penalty.value_or(params.presence_penalty);
  params.frequency_penalty = flags.frequency_penalty.value_or(params.frequency_penalty);
  params.repetition_penalty = flags.repetition_penalty.value_or(params.repetition_penalty);
  params.seed = flags.seed;
  return params;
}

void print_error(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "sluice: error: %s\n", printable_line(status.message()).c_str());
}

int exit_code_of(const Status& status) {
  if (status.ok()) return 0;
  print_error(status);
  return status.code() == StatusCode::kCancelled ? kInterruptedExitCode : 1;
}

}  // namespace sluice
