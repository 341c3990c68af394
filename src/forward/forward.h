#pragma once
// Rows in, logits out, state advanced. Knows rows and nothing else: no requests, drafts or grammar.

#include <span>

#include "forward/decoder_layer.h"

namespace sluice {

struct ForwardLimits {
  int64_t num_rows_max = 1;
  int64_t num_logit_rows_max = 1;
  int64_t context_max = 0;
};

/// One step of the target model.
struct StepInput {
  /// One id a row, each below vocab_size.
  std::span<const int32_t> token_ids;
  /// Cover the rows in order, each of another session.
  std::span<const RowRun> runs;
  GdnForm gdn_form = GdnForm::kStep;
  /// Rows whose logits are wanted, in the order they come out.
  std::span<const int32_t> logit_rows;
};

/// One step of the draft head: row i pairs the hidden vector of position p with the token at p + 1 and stands
/// at position p of its run (model-spec section 4).
struct MtpInput {
  /// [num_rows, hidden_size] after the target's final norm, or the head's own output when drafts chain.
  MatView<const bf16> hidden;
  std::span<const int32_t> next_token_ids;
  std::span<const RowRun> runs;
  std::span<const int32_t> logit_rows;
};

/// Valid until the next step.
struct StepOutput {
  MatView<const bf16>
      hidden;  // [num_rows, hidden_size] after the final norm; in the backend's memory
  MatView<const bf16> logits;  // [logit_rows, vocab_size]; the host may read them
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

  /// Advances the state in `state` behind every run; the caller advances its Sequences.
  StepOutput forward_rows(const StepInput& input, StatePool& state);
  /// Pre: has_mtp(). Writes the drafter's keys and values only.
  StepOutput mtp_rows(const MtpInput& input, StatePool& state);

 private:
  Forward() = default;
  LayerContext layer_context(std::span<const RowRun> runs, GdnForm form, StatePool& state,
                             OpContext& op_context) const;
  OpContext begin_step(const StepRows& rows);
  StepOutput head(VectorView norm, std::span<const int32_t> logit_rows, const Activations& act,
                  OpContext& op_context) const;

  const ModelWeights* weights_ = nullptr;
  const OpTable* ops_ = nullptr;
  ThreadPool* pool_ = nullptr;
  OpTap* tap_ = nullptr;
  ForwardLimits limits_;
  RopeTable rope_;
  Activations::Buffers buffers_;
  Arena scratch_;
  Activations activations_;
};

/// What check_shape and scratch_bytes see of this model.
OpDims op_dims(const ModelConfig& config, const ForwardLimits& limits, int num_threads);

}  // namespace sluice
