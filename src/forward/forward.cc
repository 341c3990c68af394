#include "forward/forward.h"

#include <algorithm>

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
  return dims;
}

Result<Forward> Forward::create(const ModelWeights& weights, const OpTable& ops, ThreadPool& pool,
                                const ForwardLimits& limits) {
  const OpDims dims = op_dims(weights.config, limits, pool.num_threads());
  SLUICE_RETURN_IF_ERROR(ops.check_shape(dims));
  Forward forward;
  forward.weights_ = &weights;
  forward.ops_ = &ops;
  forward.pool_ = &pool;
  forward.limits_ = limits;
  SLUICE_ASSIGN_OR_RETURN(forward.rope_,
                          RopeTable::create(weights.config, limits.context_max, *ops.memory));
  SLUICE_ASSIGN_OR_RETURN(forward.buffers_,
                          Activations::create_buffers(weights.config, limits.num_rows_max,
                                                      limits.num_logit_rows_max, *ops.memory));
  forward.activations_ = Activations::take(&forward.buffers_, weights.config, limits.num_rows_max,
                                           limits.num_logit_rows_max);
  SLUICE_ASSIGN_OR_RETURN(
      Buffer scratch,
      ops.memory->allocate(ops.scratch_bytes(dims), "backend scratch", MemoryKind::kPrivate));
  forward.scratch_ = Arena(std::move(scratch));
  return forward;
}

LayerContext Forward::layer_context(std::span<const RowRun> runs, GdnForm form, StatePool& state,
                                    OpContext& op_context) const {
  return {weights_->config, *ops_, op_context, rope_, state, runs, form};
}

OpContext Forward::begin_step(const StepRows& rows) {
  check_runs(rows.runs, static_cast<int64_t>(rows.token_ids.size()), limits_.context_max);
  for (const int32_t id : rows.token_ids) {
    SLUICE_CHECK_GE(id, 0);
    SLUICE_CHECK_LT(id, weights_->config.vocab_size);
  }
  scratch_.reset();
  OpContext op_context;
  op_context.pool = pool_;
  op_context.scratch = &scratch_;
  op_context.tap = tap_;
  ops_->begin_step(rows, op_context);
  return op_context;
}

StepOutput Forward::head(VectorView norm, std::span<const int32_t> logit_rows,
                         const Activations& act, OpContext& op_context) const {
  ops_->rms_norm({act.x, norm, weights_->config.rms_norm_eps, act.hidden}, op_context);
  const auto num_logit_rows = static_cast<int64_t>(logit_rows.size());
  SLUICE_CHECK_LE(num_logit_rows, limits_.num_logit_rows_max);
  const MatView<bf16> input = act.logit_input.rows(0, num_logit_rows);
  const MatView<bf16> logits = act.logits.rows(0, num_logit_rows);
  for (int64_t i = 0; i < num_logit_rows; ++i) {
    const int32_t row = logit_rows[static_cast<size_t>(i)];
    SLUICE_CHECK_LT(row, act.hidden.num_rows);
    ops_->memory->copy(input.row(i), act.hidden.row(row),
                       static_cast<size_t>(act.hidden.num_cols) * sizeof(bf16));
  }
  if (num_logit_rows > 0) {
    const Projection lm_head = {weights_->lm_head, logits};
    ops_->linear({input, {&lm_head, 1}}, op_context);
  }
  ops_->end_step(op_context);
  return {act.hidden, logits};
}

StepOutput Forward::forward_rows(const StepInput& input, StatePool& state) {
  const auto num_rows = static_cast<int64_t>(input.token_ids.size());
  SLUICE_CHECK_GT(num_rows, 0);
  SLUICE_CHECK_LE(num_rows, limits_.num_rows_max);
  const Activations act = activations_.first_rows(num_rows);
  OpContext op_context = begin_step({input.token_ids, input.runs});
  ops_->embed({weights_->embed_tokens, input.token_ids, act.x}, op_context);
  const LayerContext context = layer_context(input.runs, input.gdn_form, state, op_context);
  int64_t num_gdn = 0;
  int64_t num_attention = 0;
  for (const LayerWeights& layer : weights_->layers) {
    const bool is_gdn = std::holds_alternative<GdnLayerWeights>(layer.mixer);
    decoder_layer(layer, is_gdn ? num_gdn++ : num_attention++, context, act);
  }
  return head(weights_->norm, input.logit_rows, act, op_context);
}

StepOutput Forward::mtp_rows(const MtpInput& input, StatePool& state) {
  SLUICE_CHECK(has_mtp());
  const MtpWeights& mtp = *weights_->mtp;
  const int64_t num_rows = input.hidden.num_rows;
  SLUICE_CHECK_EQ(static_cast<int64_t>(input.next_token_ids.size()), num_rows);
  SLUICE_CHECK_LE(num_rows, limits_.num_rows_max);
  const Activations act = activations_.first_rows(num_rows);
  const int64_t hidden_size = weights_->config.hidden_size;
  const float eps = weights_->config.rms_norm_eps;
  OpContext op_context = begin_step({input.next_token_ids, input.runs});
  // The hidden half first: `input.hidden` may be act.hidden of the step before, which nothing here overwrites earlier.
  ops_->rms_norm(
      {input.hidden, mtp.pre_fc_norm_hidden, eps, act.mtp_input.cols(hidden_size, hidden_size)},
      op_context);
  ops_->embed({weights_->embed_tokens, input.next_token_ids, act.x}, op_context);
  ops_->rms_norm({act.x, mtp.pre_fc_norm_embedding, eps, act.mtp_input.cols(0, hidden_size)},
                 op_context);
  const Projection fc = {mtp.fc, act.x};
  ops_->linear({act.mtp_input, {&fc, 1}}, op_context);
  const LayerContext context = layer_context(input.runs, GdnForm::kStep, state, op_context);
  decoder_layer(mtp.layer, weights_->config.num_full_attention_layers(), context, act);
  return head(mtp.norm, input.logit_rows, act, op_context);
}

}  // namespace sluice
