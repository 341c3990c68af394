#include "verify/model_runner.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace sluice {
Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const ModelWeights& weights,
                                                         const Backend& backend,
                                                         const RunnerLimits& wanted) {
  RunnerLimits limits = wanted;
  limits.rows_max = std::min(wanted.rows_max, backend.prefill_rows_max);
  SLUICE_CHECK_EQ(limits.rows_max % kGdnChunk, 0);
  StateLimits state_limits;
  state_limits.num_slots = 2 * limits.num_sequences;
  state_limits.num_pages =
      static_cast<int32_t>(limits.num_sequences * pages_for(limits.context_max));
  state_limits.context_max = limits.context_max;
  SLUICE_ASSIGN_OR_RETURN(StatePool state,
                          StatePool::create(weights.config, state_limits, *backend.ops->memory));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(weights, backend, limits, std::move(state)));
  SLUICE_ASSIGN_OR_RETURN(runner->forward_,
                          Forward::create(weights, *backend.ops, runner->pool_,
                                          {limits.rows_max, limits.rows_max, limits.context_max,
                                           backend.prefill_math}));
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
                               int64_t first, const Sequence& sequence, GdnForm form) {
  Sequence at = sequence;
  at.position = first;
  const RowRun run = state_.next_run(at, 0, static_cast<int32_t>(next_ids.size()));
  return forward_->mtp_rows({hidden, next_ids, {&run, 1}, all_rows(next_ids.size()), form}, state_);
}

StepOutput ModelRunner::engine_prefill(std::span<const int32_t> ids, Sequence* sequence) {
  return prefill(*forward_, state_, ids, {backend_.prefill_form, limits_.rows_max}, sequence);
}

Check ModelRunner::range_check(std::string subject) const {
  return bounded("range", std::move(subject), static_cast<double>(forward_->num_out_of_range()),
                 0.0, "steps with an activation outside the backend's number format");
}

std::vector<int32_t> random_ids(const ModelConfig& config, uint64_t seed, int64_t count) {
  std::mt19937_64 rng(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(rng() % static_cast<uint64_t>(config.vocab_size)));
  }
  return ids;
}

int64_t mixer_idx(const ModelConfig& config, int64_t layer) {
  const auto first = config.layer_types.begin();
  return std::count(first, first + layer, config.layer_types[static_cast<size_t>(layer)]);
}

int32_t best_id(std::span<const bf16> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (to_float(logits[i]) > to_float(logits[best])) best = i;
  }
  return static_cast<int32_t>(best);
}

}  // namespace sluice
