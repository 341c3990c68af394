#include "verify/model_runner.h"

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

int64_t pages_of(int64_t num_tokens) {
  return (num_tokens + kKvPageTokens - 1) / kKvPageTokens;
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const ModelWeights& weights,
                                                         const Backend& backend,
                                                         const RunnerLimits& limits) {
  SLUICE_CHECK_EQ(limits.rows_max % kGdnChunk, 0);
  StateLimits state_limits;
  state_limits.num_slots = 2 * limits.num_sequences;
  state_limits.num_pages =
      static_cast<int32_t>(limits.num_sequences * pages_of(limits.context_max));
  state_limits.context_max = limits.context_max;
  SLUICE_ASSIGN_OR_RETURN(StatePool state,
                          StatePool::create(weights.config, state_limits, *backend.ops->memory));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(weights, backend, limits, std::move(state)));
  SLUICE_ASSIGN_OR_RETURN(runner->forward_,
                          Forward::create(weights, *backend.ops, runner->pool_,
                                          {limits.rows_max, limits.rows_max, limits.context_max}));
  return runner;
}

ModelRunner::ModelRunner(const ModelWeights& weights, const Backend& backend,
                         const RunnerLimits& limits, StatePool state)
    : weights_(weights),
      backend_(backend),
      limits_(limits),
      pool_(limits.num_threads),
      state_(std::move(state)),
      row_numbers_(static_cast<size_t>(limits.rows_max)) {
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
}

Sequence ModelRunner::open() {
  Result<Sequence> sequence = state_.open();
  SLUICE_CHECK(sequence.ok());
  SLUICE_CHECK(state_.reserve(&*sequence, limits_.context_max).ok());
  return *std::move(sequence);
}

std::span<const int32_t> ModelRunner::all_rows(size_t count) const {
  return std::span(row_numbers_).first(count);
}

StepOutput ModelRunner::step(std::span<const int32_t> ids, GdnForm form, Sequence* sequence) {
  RowRun run = state_.next_run(*sequence, 0, static_cast<int32_t>(ids.size()));
  if (form == GdnForm::kStep) run.checkpoint_slot = kNoSlot;
  const StepOutput output =
      forward_->forward_rows({ids, {&run, 1}, form, all_rows(ids.size())}, state_);
  state_.advance(sequence, static_cast<int64_t>(ids.size()), form == GdnForm::kChunk);
  return output;
}

void ModelRunner::prompt(std::span<const int32_t> ids, Sequence* sequence, const StepSink& sink) {
  const auto num_ids = static_cast<int64_t>(ids.size());
  while (sequence->position < num_ids) {
    const int64_t first = sequence->position;
    const auto count = static_cast<size_t>(std::min(limits_.rows_max, num_ids - first));
    sink(first,
         step(ids.subspan(static_cast<size_t>(first), count), backend_.prefill_form, sequence));
  }
}

StepOutput ModelRunner::rows(std::span<const int32_t> ids, Sequence* sequence) {
  return step(ids, GdnForm::kStep, sequence);
}

StepOutput ModelRunner::drafts(const MatView<const bf16>& hidden, std::span<const int32_t> next_ids,
                               int64_t first, const Sequence& sequence) {
  Sequence at = sequence;
  at.position = first;
  const RowRun run = state_.next_run(at, 0, static_cast<int32_t>(next_ids.size()));
  return forward_->mtp_rows({hidden, next_ids, {&run, 1}, all_rows(next_ids.size())}, state_);
}

StepOutput ModelRunner::engine_prefill(std::span<const int32_t> ids, Sequence* sequence) {
  return prefill(*forward_, state_, ids, {backend_.prefill_form, limits_.rows_max}, sequence);
}

int32_t best_id(std::span<const bf16> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (to_float(logits[i]) > to_float(logits[best])) best = i;
  }
  return static_cast<int32_t>(best);
}

}  // namespace sluice
