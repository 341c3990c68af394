#pragma once
// Prompts as the engine runs them, on the CUDA backend: to the first token, and their times.

#include "apps/bench/bench_model.h"
#include "apps/bench/step_runner.h"
#include "decode/prefill.h"
#include "engine/backend.h"

namespace sluice {

/// A prompt of `tokens` ids behind a session that holds `past` already; 0: a cold one.
struct PromptCase {
  int64_t tokens = 0;
  int64_t past = 0;

  int64_t context() const { return past + tokens; }
  bool operator==(const PromptCase&) const = default;
};

struct PromptTimes {
  int num_runs = 0;
  int num_steps = 0;  // of a run
  // Medians of the runs, to the first token, which is drawn on the GPU.
  double gpu_us = 0.0;   // first launch to last
  double wall_us = 0.0;  // the host's clock around all of it
  double wall_us_max = 0.0;
  int32_t drawn = kNoToken;  // the same in all runs
};

struct PrefillRunnerOptions {
  /// Memory is taken for the longest.
  std::span<const PromptCase> cases = {};
  /// Ids of the signature's prompt.
  int64_t signature_ids = 4096;
  uint64_t seed = 0;
};

class PrefillRunner {
 public:
  /// `weights` and the backend's table (CUDA's; any for signatures) outlive it.
  static Result<std::unique_ptr<PrefillRunner>> create(const ModelWeights& weights,
                                                       const Backend& backend,
                                                       const PrefillRunnerOptions& options);

  /// At most num_runs runs, each from the same state; fewer of long prompts. kDataLoss when they draw different tokens.
  Result<PromptTimes> time(const PromptCase& prompt, int num_runs);
  /// Pre: the prompt is one step, past a multiple of kGdnChunk.
  Result<CaughtStep> catch_step(const PromptCase& prompt);
  /// Behind its prompt, which is run whole.
  Result<Signature> signature() { return signature_of({{signature_ids_}, rows_max_}); }
  /// Equal to signature() however the prompt is cut: `num_cuts` random ways, each with a random number of rows a step. kDataLoss names the first that differs.
  Status check_cuts(const Signature& whole, int num_cuts);

  /// Rows of one step.
  int64_t rows_max() const { return rows_max_; }

 private:
  /// Where pieces of the signature's prompt end, the last at its end, and rows of a step.
  struct Cut {
    std::vector<int64_t> ends;
    int64_t rows_max;
  };
  struct Run {
    int num_steps = 0;
    double gpu_us = 0.0;
    double wall_us = 0.0;
    int32_t drawn = kNoToken;
  };
  PrefillRunner() = default;
  std::span<const int32_t> ids_of(const PromptCase& prompt) const;
  /// Refers to `request`.
  PrefillOptions drawing(const DrawRequest& request) const;
  Result<Run> run_once(const PromptCase& prompt);
  Cut random_cut(uint64_t key) const;
  Result<Signature> signature_of(const Cut& cut);

  std::unique_ptr<BenchModel> model_;
  GdnForm form_ = GdnForm::kStep;
  int64_t rows_max_ = 0;
  int64_t signature_ids_ = 0;
  uint64_t seed_ = 0;
  std::vector<int32_t> ids_;  // of the longest session
};

}  // namespace sluice
