#include "forward/forward.h"

#include <algorithm>

#include "forward/block_parts.h"

namespace sluice {
namespace {

void check_runs(std::span<const RowRun> runs, int64_t num_rows, int64_t context_max) {
  int64_t next = 0;
  for (const RowRun& run : runs) {
    SLUICE_CHECK_EQ(run.first_row, next);
    SLUICE_CHECK_GT(run.num_rows, 0);
    // A page table may reach further, to the end of its last page; the RoPE table does not.
    SLUICE_CHECK_LE(run.position + run.num_rows, context_max);
    next += run.num_rows;
  }
  SLUICE_CHECK_EQ(next, num_rows);
}

}  // namespace

Status check_prefill_math(const ModelWeights& weights, const ForwardLimits& limits) {
  const bool is_fp8 = weights.layers[0].mlp.gate_proj.format == WeightFormat::kFp8Block128;
  if (limits.prefill_math == PrefillMath::kExact || is_fp8) return Status();
  return unsupported(
      "prefill math fp8 is for checkpoints in block FP8; this one's projections are BF16: use "
      "exact");
}

OpDims op_dims(const ModelConfig& c, const ForwardLimits& limits, int num_threads) {
  OpDims dims;
  dims.hidden = c.hidden_size;
  dims.intermediate = c.intermediate_size;
  dims.vocab_size = c.vocab_size;
  dims.gdn = gdn_shape(c);
  dims.attention = attention_shape(c);
  dims.num_rows_max = limits.num_rows_max;
  dims.context_max = limits.context_max;
  dims.num_threads = num_threads;
  dims.prefill_math = limits.prefill_math;
  return dims;
}

Result<Forward> Forward::create(const ModelWeights& weights, const OpTable& ops, ThreadPool& pool,
                                const ForwardLimits& limits) {
  const OpDims dims = op_dims(weights.config, limits, pool.num_threads());
  SLUICE_RETURN_IF_ERROR(ops.check_shape(dims));
  SLUICE_RETURN_IF_ERROR(check_prefill_math(weights, limits));
  Forward forward;
  forward.weights_ = &weights;
  forward.ops_ = &ops;
  forward.pool_ = &pool;
  forward.limits_ = limits;
  SLUICE_ASSIGN_OR_RETURN(forward.rope_,
                          RopeTable::create(weights.config, limits.context_max, *ops.memory));
  const int64_t rows_max = padded_rows(ops, limits.num_rows_max);
  const int64_t logit_rows_max = padded_rows(ops, limits.num_logit_rows_max);
  SLUICE_ASSIGN_OR_RETURN(
      forward.buffers_,
      Activations::create_buffers(weights.config, rows_max, logit_rows_max, *ops.memory));
  forward.activations_ =
      Activations::take(&forward.buffers_, weights.config, rows_max, logit_rows_max);
  SLUICE_ASSIGN_OR_RETURN(
      Buffer scratch,
      ops.memory->allocate(ops.scratch_bytes(dims), "backend scratch", MemoryKind::kPrivate));
  forward.scratch_ = Arena(std::move(scratch));
  SLUICE_ASSIGN_OR_RETURN(forward.backend_state_, open_backend_state(ops, dims));
  return forward;
}

LayerContext Forward::layer_context(std::span<const RowRun> runs, GdnForm form, StatePool& state,
                                    OpContext& op_context) const {
  return {weights_->config, *ops_, op_context, rope_, state, runs, form};
}

StepRows Forward::step_rows(std::span<const int32_t> token_ids, std::span<const RowRun> runs,
                            std::span<const int32_t> logit_rows, GdnForm form) const {
  StepRows rows = {token_ids, runs, logit_rows};
  rows.is_prefill = form == GdnForm::kChunk;
  const auto num_rows = static_cast<int64_t>(token_ids.size());
  rows.num_rows = rows.is_prefill ? num_rows : padded_rows(*ops_, num_rows);
  rows.num_logit_rows =
      logit_rows.empty() ? 0 : padded_rows(*ops_, static_cast<int64_t>(logit_rows.size()));
  return rows;
}

void Forward::check_step(const StepRows& rows) const {
  const auto num_rows = static_cast<int64_t>(rows.token_ids.size());
  SLUICE_CHECK_GT(num_rows, 0);
  SLUICE_CHECK_LE(num_rows, limits_.num_rows_max);
  SLUICE_CHECK_LE(static_cast<int64_t>(rows.logit_rows.size()), limits_.num_logit_rows_max);
  check_runs(rows.runs, num_rows, limits_.context_max);
  const int64_t id_min = backend_state_ == nullptr ? 0 : drawn_token(kDrawnMax - 1);
  for (const int32_t id : rows.token_ids) {
    SLUICE_CHECK_GE(id, id_min);
    SLUICE_CHECK_LT(id, weights_->config.vocab_size);
  }
  for (const int32_t row : rows.logit_rows) {
    SLUICE_CHECK_GE(row, 0);
    SLUICE_CHECK_LT(row, num_rows);
  }
}

template <typename RunOps>
PendingStep Forward::run_step(const StepRows& rows, RunOps&& run_ops) {
  if (!rows.is_rehearsal) check_step(rows);
  scratch_.reset();
  PendingStep step;
  step.op_context.pool = pool_;
  step.op_context.scratch = &scratch_;
  step.op_context.tap = tap_;
  step.op_context.state = backend_state_.get();
  const Activations act = activations_.first_rows(rows.num_rows, rows.num_logit_rows);
  const bool is_replayed = ops_->begin_step(rows, step.op_context);
  if (!is_replayed) run_ops(act, step.op_context);
  ops_->end_step(step.op_context);
  step.output.hidden = act.hidden.rows(0, static_cast<int64_t>(rows.token_ids.size()));
  step.output.logits = act.host_logits.rows(0, static_cast<int64_t>(rows.logit_rows.size()));
  step.num_draws = rows.draws.size();
  return step;
}

StepOutput Forward::finish(PendingStep step) {
  ops_->await_step(step.op_context);
  step.output.out_of_range = step.op_context.out_of_range;
  if (step.output.out_of_range) ++num_out_of_range_;
  step.output.drawn = {step.op_context.drawn, step.num_draws};
  step.output.drawn_logits = {step.op_context.drawn_logits, step.num_draws};
  return step.output;
}

void Forward::run_head(VectorView norm, std::span<const int32_t> logit_rows, const Activations& act,
                       OpContext& op_context) const {
  head(*ops_,
       {act.x, norm, weights_->config.rms_norm_eps, weights_->lm_head, logit_rows, act.hidden,
        act.logits, act.logit_input},
       op_context);
}

PendingStep Forward::start_rows(const StepInput& input, StatePool& state) {
  StepRows rows = step_rows(input.token_ids, input.runs, input.logit_rows, input.gdn_form);
  SLUICE_CHECK(input.draws.empty() ||
               (can_draw() && input.draws.size() == input.logit_rows.size()));
  SLUICE_CHECK_LE(input.draws.size(), static_cast<size_t>(kDrawnMax));
  rows.draws = input.draws;
  if (tap_ == nullptr && !rows.is_prefill) {
    rows.key = forward_key({rows.num_rows, rows.num_logit_rows, !input.draws.empty(),
                            input.num_defined, input.wants_logits},
                           state);
  }
  return run_step(rows, [&](const Activations& act, OpContext& op_context) {
    forward_ops(input, state, act, op_context);
  });
}

StepKey Forward::forward_key(const StepShape& shape, const StatePool& state) const {
  StepKey key = {StepKey::Kind::kForward, state.slots_place(), state.pages_place(), nullptr};
  key.draws = shape.draws;
  key.num_defined = shape.draws ? shape.num_defined : 0;
  key.exports_logits = shape.wants_logits && shape.num_logit_rows > 0;
  return key;
}

void Forward::rehearse_rows(const StepShape& shape, StatePool& state) {
  SLUICE_CHECK(!shape.draws || (can_draw() && shape.num_logit_rows > 0));
  SLUICE_CHECK_LE(shape.num_rows, limits_.num_rows_max);
  SLUICE_CHECK_LE(shape.num_logit_rows, limits_.num_logit_rows_max);
  StepRows rows;
  rows.is_rehearsal = true;
  rows.num_rows = padded_rows(*ops_, shape.num_rows);
  if (shape.num_logit_rows > 0) rows.num_logit_rows = padded_rows(*ops_, shape.num_logit_rows);
  rows.key = forward_key(shape, state);
  const DrawRequest draw;
  StepInput input;
  if (shape.draws) input.draws = {&draw, 1};
  input.num_defined = shape.num_defined;
  input.wants_logits = shape.wants_logits;
  run_step(rows, [&](const Activations& act, OpContext& op_context) {
    forward_ops(input, state, act, op_context);
  });
}

void Forward::forward_ops(const StepInput& input, StatePool& state, const Activations& act,
                          OpContext& op_context) const {
  ops_->embed({weights_->embed_tokens, input.token_ids, act.x}, op_context);
  const LayerContext context = layer_context(input.runs, input.gdn_form, state, op_context);
  int64_t num_gdn = 0;
  int64_t num_attention = 0;
  for (const LayerWeights& layer : weights_->layers) {
    const bool is_gdn = std::holds_alternative<GdnLayerWeights>(layer.mixer);
    decoder_layer(layer, is_gdn ? num_gdn++ : num_attention++, context, act);
  }
  run_head(weights_->norm, input.logit_rows, act, op_context);
  if (!input.draws.empty()) ops_->draw({act.logits, input.num_defined}, op_context);
  if (input.wants_logits) export_logits(act);
}

void Forward::export_logits(const Activations& act) const {
  if (act.host_logits.data == act.logits.data || act.logits.num_rows == 0) return;
  const auto count = static_cast<size_t>(act.logits.num_rows * act.logits.num_cols);
  ops_->memory->copy(act.host_logits.data, act.logits.data, count * sizeof(bf16));
}

PendingStep Forward::start_mtp_rows(const MtpInput& input, StatePool& state) {
  SLUICE_CHECK(has_mtp());
  SLUICE_CHECK_EQ(static_cast<int64_t>(input.next_token_ids.size()), input.hidden.num_rows);
  StepRows rows = step_rows(input.next_token_ids, input.runs, input.logit_rows, input.gdn_form);
  if (tap_ == nullptr && !rows.is_prefill) {
    rows.key = {StepKey::Kind::kDraft, state.slots_place(), state.pages_place(), input.hidden.data};
  }
  return run_step(rows, [&](const Activations& act, OpContext& op_context) {
    mtp_ops(input, state, act, op_context);
  });
}

void Forward::mtp_ops(const MtpInput& input, StatePool& state, const Activations& act,
                      OpContext& op_context) const {
  const MtpWeights& mtp = *weights_->mtp;
  const int64_t hidden_size = weights_->config.hidden_size;
  const float eps = weights_->config.rms_norm_eps;
  // Padding rows of the view may lie outside the caller's buffer: rms_norm leaves them out.
  const MatView<const bf16> hidden(input.hidden.data, act.x.num_rows, input.hidden.num_cols,
                                   input.hidden.stride);
  // The hidden half first: `input.hidden` may be act.hidden of the step before, which nothing here overwrites earlier.
  ops_->rms_norm(
      {hidden, mtp.pre_fc_norm_hidden, eps, act.mtp_input.cols(hidden_size, hidden_size)},
      op_context);
  ops_->embed({weights_->embed_tokens, input.next_token_ids, act.x}, op_context);
  ops_->rms_norm({act.x, mtp.pre_fc_norm_embedding, eps, act.mtp_input.cols(0, hidden_size)},
                 op_context);
  const Projection fc = {mtp.fc, act.x};
  ops_->linear({act.mtp_input, {&fc, 1}}, op_context);
  const LayerContext context = layer_context(input.runs, input.gdn_form, state, op_context);
  decoder_layer(mtp.layer, weights_->config.num_full_attention_layers(), context, act);
  run_head(mtp.norm, input.logit_rows, act, op_context);
  export_logits(act);
}

}  // namespace sluice
