#pragma once
// A model on a backend with its own state, driven row by row: what the checks run.

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/threads.h"
#include "decode/prefill.h"
#include "engine/backend.h"
#include "forward/forward.h"
#include "verify/report.h"

namespace sluice {

struct RunnerLimits {
  int num_threads = 0;  // 0: one per core
  int64_t context_max = 0;
  /// Rows of one step; a multiple of kGdnChunk.
  int64_t rows_max = 2 * kGdnChunk;
  int32_t num_sequences = 1;
};

class ModelRunner {
 public:
  /// `weights` and the backend's table outlive it.
  static Result<std::unique_ptr<ModelRunner>> create(const ModelWeights& weights,
                                                     const Backend& backend,
                                                     const RunnerLimits& limits);

  /// A new session with room for context_max tokens. Pre: fewer than num_sequences are open.
  Sequence open();
  void close(Sequence* sequence) { state_.close(sequence); }

  /// Sees every step: the position of its first row, all rows' hidden vectors and logits.
  using StepSink = std::function<void(int64_t first, const StepOutput& output)>;
  /// ids[sequence->position ..) in the backend's prompt form. Pre: the position suits the form.
  void prompt(std::span<const int32_t> ids, Sequence* sequence, const StepSink& sink);
  /// The rows behind the sequence as one step of the skinny regime (decode, verify): all logits.
  StepOutput rows(std::span<const int32_t> ids, Sequence* sequence);
  /// The draft head at positions first .. of the sequence: hidden[i] with next_ids[i], behind a step of that form.
  StepOutput drafts(const MatView<const bf16>& hidden, std::span<const int32_t> next_ids,
                    int64_t first, const Sequence& sequence, GdnForm form = GdnForm::kStep);
  /// ids[sequence->position ..) as the engine runs a prompt: the last row's output.
  StepOutput engine_prefill(std::span<const int32_t> ids, Sequence* sequence);

  GdnForm prompt_form() const { return backend_.prefill_form; }

  /// Did every activation of every step so far fit the backend's number format?
  Check range_check(std::string subject) const;

  Forward& forward() { return *forward_; }
  StatePool& state() { return state_; }
  const StatePool& state() const { return state_; }
  const ModelConfig& config() const { return weights_.config; }

 private:
  ModelRunner(const ModelWeights& weights, const Backend& backend, const RunnerLimits& limits,
              StatePool state);
  StepOutput step(std::span<const int32_t> ids, GdnForm form, Sequence* sequence);
  std::span<const int32_t> all_rows(size_t count) const;

  const ModelWeights& weights_;
  Backend backend_;
  RunnerLimits limits_;
  ThreadPool pool_;
  StatePool state_;
  std::optional<Forward> forward_;  // set by create
  std::vector<int32_t> row_numbers_;
};

/// Ids that stand in for text.
std::vector<int32_t> random_ids(const ModelConfig& config, uint64_t seed, int64_t count);

/// Layers of the same kind before `layer`: its place in the state pool.
int64_t mixer_idx(const ModelConfig& config, int64_t layer);

/// Index of the largest value, the lowest of equal ones.
int32_t best_id(std::span<const bf16> logits);

}  // namespace sluice
