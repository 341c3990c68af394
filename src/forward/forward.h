#pragma once
// Rows in, logits out, state advanced. Knows rows and nothing else: no requests, drafts or grammar.

#include <span>

#include "forward/decoder_layer.h"

namespace sluice {

struct ForwardLimits {
  int64_t num_rows_max = 1;
  int64_t num_logit_rows_max = 1;
  int64_t context_max = 0;
  PrefillMath prefill_math = PrefillMath::kExact;
};

/// One step of the target model.
struct StepInput {
  /// One id a row, each below vocab_size, or drawn_token(i) where the backend draws itself.
  std::span<const int32_t> token_ids;
  /// Cover the rows in order, each of another session.
  std::span<const RowRun> runs;
  GdnForm gdn_form = GdnForm::kStep;
  /// Rows whose logits are wanted, in the order they come out.
  std::span<const int32_t> logit_rows;
  /// One a logit row, or none. Pre: Forward::can_draw(). Ids from num_defined on are never drawn.
  std::span<const DrawRequest> draws = {};
  int32_t num_defined = 0;
  /// False: the host does not look at them.
  bool wants_logits = true;
};

/// What steps of one kind have in common: how a backend knows a step it has recorded.
struct StepShape {
  /// Up to what the backend pads them to.
  int64_t num_rows = 1;
  int64_t num_logit_rows = 1;
  /// As StepInput.
  bool draws = false;
  int32_t num_defined = 0;
  bool wants_logits = true;
};

/// One step of the draft head: row i pairs the hidden vector of position p with the token at p + 1 and stands
/// at position p of its run (model-spec section 4).
struct MtpInput {
  /// [num_rows, hidden_size] after the target's final norm, or the head's own output when drafts chain.
  MatView<const bf16> hidden;
  std::span<const int32_t> next_token_ids;
  std::span<const RowRun> runs;
  std::span<const int32_t> logit_rows;
  /// kChunk: behind a prompt's rows, kStep: behind decode's.
  GdnForm gdn_form = GdnForm::kStep;
};

/// Valid until the next step.
struct StepOutput {
  MatView<const bf16>
      hidden;  // [num_rows, hidden_size] after the final norm; in the backend's memory
  MatView<const bf16> logits;  // [logit_rows, vocab_size]; the host may read them if it wanted them
  /// An activation did not fit the backend's number format: nothing here is to be used.
  bool out_of_range = false;
  /// One a DrawRequest; kNoToken where a logit was NaN or positive infinity, or where nothing was run (drawn_token).
  std::span<const int32_t> drawn = {};
  /// One a DrawRequest, of use where it asked for log probabilities.
  std::span<const DrawnLogits> drawn_logits = {};
};

/// A step under way. Its output may be read behind Forward::finish.
struct PendingStep {
  OpContext op_context;
  StepOutput output;
  size_t num_draws = 0;
};

class Forward {
 public:
  /// Takes every buffer a step needs. `weights`, `ops` and `pool` outlive it.
  /// kUnsupported when the backend lacks a kernel for one of the model's shapes.
  static Result<Forward> create(const ModelWeights& weights, const OpTable& ops, ThreadPool& pool,
                                const ForwardLimits& limits);

  const ForwardLimits& limits() const { return limits_; }
  /// For verification: `tap` rides in every op's context. Null takes it off again.
  void set_tap(OpTap* tap) { tap_ = tap; }
  bool has_mtp() const { return weights_->mtp.has_value(); }
  /// Does the backend draw tokens itself?
  bool can_draw() const { return ops_->draw != nullptr; }

  /// Advances the state in `state` behind every run; the caller advances its Sequences.
  StepOutput forward_rows(const StepInput& input, StatePool& state) {
    return finish(start_rows(input, state));
  }
  /// Pre: has_mtp(). Writes the drafter's keys and values only.
  StepOutput mtp_rows(const MtpInput& input, StatePool& state) {
    return finish(start_mtp_rows(input, state));
  }

  /// The same in two halves: a backend of its own device goes on while the host does something else, and the next steps may
  /// be started before this one is finished. Every step is finished, in order. Hidden vectors and logits have one
  /// place for all steps: behind a later start they are that step's. `out_of_range` and what was drawn are each step's own until
  /// kStepsAheadMax later ones were started.
  PendingStep start_rows(const StepInput& input, StatePool& state);
  PendingStep start_mtp_rows(const MtpInput& input, StatePool& state);
  StepOutput finish(PendingStep step);

  /// A backend that records steps records start_rows' steps of this shape now, so that the first of them allocates nothing either.
  /// Nothing is run.
  void rehearse_rows(const StepShape& shape, StatePool& state);

  /// Finished steps with an activation outside the backend's number format: their rows' state is lost.
  int64_t num_out_of_range() const { return num_out_of_range_; }

 private:
  Forward() = default;
  LayerContext layer_context(std::span<const RowRun> runs, GdnForm form, StatePool& state,
                             OpContext& op_context) const;
  StepRows step_rows(std::span<const int32_t> token_ids, std::span<const RowRun> runs,
                     std::span<const int32_t> logit_rows, GdnForm form) const;
  StepKey forward_key(const StepShape& shape, const StatePool& state) const;
  void check_step(const StepRows& rows) const;
  /// Calls `run_ops`, or the backend replays them.
  template <typename RunOps>
  PendingStep run_step(const StepRows& rows, RunOps&& run_ops);
  void forward_ops(const StepInput& input, StatePool& state, const Activations& act,
                   OpContext& op_context) const;
  void mtp_ops(const MtpInput& input, StatePool& state, const Activations& act,
               OpContext& op_context) const;
  void run_head(VectorView norm, std::span<const int32_t> logit_rows, const Activations& act,
                OpContext& op_context) const;
  void export_logits(const Activations& act) const;

  const ModelWeights* weights_ = nullptr;
  const OpTable* ops_ = nullptr;
  ThreadPool* pool_ = nullptr;
  OpTap* tap_ = nullptr;
  ForwardLimits limits_;
  std::unique_ptr<BackendState> backend_state_;
  RopeTable rope_;
  Activations::Buffers buffers_;
  Arena scratch_;
  Activations activations_;
  int64_t num_out_of_range_ = 0;
};

/// kUnsupported where limits.prefill_math asks for FP8 and the checkpoint's projections are not.
Status check_prefill_math(const ModelWeights& weights, const ForwardLimits& limits);

/// What check_shape and scratch_bytes see of this model.
OpDims op_dims(const ModelConfig& config, const ForwardLimits& limits, int num_threads);

}  // namespace sluice
