#include "apps/verify.h"

#include <chrono>
#include <cstdio>

#include "engine/backend.h"
#include "model/checkpoint.h"
#include "verify/checkpoint_hash.h"
#include "verify/verify.h"

namespace sluice {
namespace {

/// The golden of the embedded model lies beside it in the source tree; an installed one has none.
Path golden_beside(const Path& embedded_dir) {
  return embedded_dir / "../../tests/golden/model/tiny_agent";
}

Result<Path> golden_dir(const VerifyCommandOptions& options, const Path& dir) {
  if (!options.golden_dir.empty()) return Path(options.golden_dir);
  std::error_code error;
  const Result<Path> embedded = embedded_model_dir();
  const bool is_embedded =
      embedded.ok() && std::filesystem::equivalent(dir, *embedded, error) && !error;
  const Path beside = golden_beside(dir);
  return is_embedded && std::filesystem::exists(beside, error) ? beside : Path();
}

Status check_same_checkpoint(const Golden& golden, const Path& dir) {
  SLUICE_ASSIGN_OR_RETURN(const std::string hash, checkpoint_hash(dir));
  if (hash == golden.checkpoint_hash) return Status();
  return invalid_argument(
      "the golden was recorded from {} ({}); the weights in {} are others ({}); give the golden of "
      "this checkpoint",
      golden.checkpoint_name, golden.checkpoint_hash, dir.string(), hash);
}

Result<std::optional<Golden>> find_golden(const VerifyCommandOptions& options, const Path& dir,
                                          const ModelConfig& config) {
  SLUICE_ASSIGN_OR_RETURN(const Path golden_path, golden_dir(options, dir));
  if (golden_path.empty()) return std::optional<Golden>();
  SLUICE_ASSIGN_OR_RETURN(Golden golden, load_golden(golden_path, config));
  SLUICE_RETURN_IF_ERROR(check_same_checkpoint(golden, dir));
  std::printf("golden   %s: %zu prompts\noracle   %s\n", golden_path.c_str(), golden.cases.size(),
              golden.oracle.c_str());
  return std::optional<Golden>(std::move(golden));
}

Result<bool> verify(const VerifyCommandOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(const Path dir, model_dir(options.model));
  SLUICE_ASSIGN_OR_RETURN(
      const Backend backend,
      choose_backend(options.model.device, options.model.isa, options.model.prefill_math));
  SLUICE_ASSIGN_OR_RETURN(const LoadedModel model, load_model(dir, LoadOptions()));
  std::printf("model    %s\nbackend  %s\n", dir.c_str(), std::string(backend.ops->name).c_str());
  if (backend.prefill_math == PrefillMath::kFp8) {
    std::printf("math     prompts with activations in FP8: held to limits of that mode's own\n");
  }
  SLUICE_ASSIGN_OR_RETURN(const std::optional<Golden> golden,
                          find_golden(options, dir, model.weights.config));
  if (!golden) std::printf("golden   none: only what needs no oracle is checked\n");
  std::fflush(stdout);
  VerifyOptions checks;
  checks.num_threads = options.model.num_threads;
  checks.num_ids_max = options.num_ids_max;
  checks.num_cuts = options.num_cuts;
  checks.seed = options.seed;
  if (!options.against.empty()) {
    if (!golden) return invalid_argument("--against compares on a golden's prompts; give --golden");
    SLUICE_ASSIGN_OR_RETURN(checks.against, backend_named(options.against));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const VerifyReport report,
      verify_model(model.weights, backend, golden ? &*golden : nullptr, checks));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("time     %.1f s\n%s", seconds.count(), report_table(report).c_str());
  return report.passed();
}

}  // namespace

int run_verify(const VerifyCommandOptions& options) {
  const Result<bool> passed = verify(options);
  if (!passed.ok()) return exit_code_of(passed.status());
  return *passed ? 0 : 1;
}

}  // namespace sluice
