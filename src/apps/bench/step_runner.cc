#include "apps/bench/step_runner.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <numeric>

#include "apps/bench/statistics.h"
#include "decode/rehearsal.h"

namespace sluice {
namespace {

constexpr int kWarmUps = 5;
/// Steps that keep the GPU busy without a pause; step_block.h allows one more.
constexpr size_t kBusyAhead = 3;
constexpr int64_t kRowsMax = 64;
constexpr int32_t kSlotsPerSession = 2;

constexpr int32_t kPromptIds = 48;
constexpr uint64_t kPromptSeed = 1;

StateLimits state_limits(std::span<const StepCase> cases) {
  StateLimits limits;
  limits.context_max = kKvPageTokens;  // the signature's
  int64_t pages = 1;
  for (const StepCase& step : cases) {
    limits.num_slots = std::max(limits.num_slots, kSlotsPerSession * step.num_sessions);
    limits.context_max = std::max(limits.context_max, pages_for(step.context) * kKvPageTokens);
    pages = std::max(pages, step.num_sessions * pages_for(step.context));
  }
  limits.num_pages = static_cast<int32_t>(pages);
  return limits;
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::create(const ModelWeights& weights,
                                                       const OpTable& ops,
                                                       std::span<const StepCase> cases,
                                                       uint64_t seed) {
  std::unique_ptr<StepRunner> runner(new StepRunner);
  runner->seed_ = seed;
  const StateLimits limits = state_limits(cases);
  SLUICE_ASSIGN_OR_RETURN(
      runner->model_,
      BenchModel::create(weights, ops, limits, {kRowsMax, kRowsMax, limits.context_max}, seed));
  return runner;
}

StepRunner::~StepRunner() {
  close_sessions();
}

Status StepRunner::open_sessions(const StepCase& step) {
  close_sessions();
  const int32_t rows_each = step.num_rows / step.num_sessions;
  for (int32_t s = 0; s < step.num_sessions; ++s) {
    SLUICE_ASSIGN_OR_RETURN(Sequence session, model_->open(step.context - rows_each, step.context));
    sessions_.push_back(std::move(session));
    runs_.push_back(model_->state().next_run(sessions_.back(), s * rows_each, rows_each));
    runs_.back().checkpoint_slot = kNoSlot;
  }
  ids_ = bench_ids(seed_, step.num_rows, model_->vocab_size());
  logit_rows_.resize(static_cast<size_t>(step.num_rows));
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  draws_.assign(static_cast<size_t>(step.num_rows), greedy_request(step.context));
  return Status();
}

void StepRunner::close_sessions() {
  for (Sequence& session : sessions_) model_->close(&session);
  sessions_.clear();
  runs_.clear();
}

PendingStep StepRunner::start() {
  StepInput input = {ids_, runs_, GdnForm::kStep, logit_rows_};
  input.draws = draws_;
  input.num_defined = model_->vocab_size();
  input.wants_logits = false;
  return model_->forward().start_rows(input, model_->state());
}

template <typename OnStarted, typename OnFinished>
void StepRunner::run_ahead(int num_steps, size_t num_ahead, OnStarted&& on_started,
                           OnFinished&& on_finished) {
  std::deque<PendingStep> pending;
  for (int i = 0; i < num_steps; ++i) {
    pending.push_back(start());
    on_started();
    if (pending.size() <= num_ahead) continue;
    model_->finish(pending.front());
    pending.pop_front();
    on_finished();
  }
  for (const PendingStep& step : pending) {
    model_->finish(step);
    on_finished();
  }
}

std::vector<double> StepRunner::wall_intervals_us(int num_steps, size_t num_ahead) {
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> ends;
  run_ahead(
      kWarmUps + num_steps + 1, num_ahead, [] {}, [&] { ends.push_back(Clock::now()); });
  std::vector<double> intervals;
  for (size_t i = kWarmUps + 1; i < ends.size(); ++i) {
    intervals.push_back(std::chrono::duration<double, std::micro>(ends[i] - ends[i - 1]).count());
  }
  return intervals;
}

double StepRunner::rehearsal_ms() {
  const auto start = std::chrono::steady_clock::now();
  rehearse_steps(model_->forward(), model_->state(), GdnForm::kStep, kRowsMax,
                 model_->vocab_size());
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  return ms.count();
}

Result<StepTimes> StepRunner::time(const StepCase& step, int num_steps) {
  SLUICE_RETURN_IF_ERROR(open_sessions(step));
  cuda::GpuClock clock;
  run_ahead(
      kWarmUps, 0, [] {}, [] {});
  // The last mark lies behind a step that others follow, so that none has the GPU to itself.
  int num_started = 0;
  run_ahead(
      num_steps + 2, kBusyAhead,
      [&] {
        if (++num_started <= num_steps + 1) clock.mark();
      },
      [] {});
  const std::vector<double> gpu_us = clock.intervals_us();
  StepTimes times;
  times.gpu_us = quantile(gpu_us, 0.5);
  times.gpu_us_p25 = quantile(gpu_us, 0.25);
  times.gpu_us_p75 = quantile(gpu_us, 0.75);
  times.wall_us = quantile(wall_intervals_us(num_steps, 1), 0.5);
  times.in_turn_us = quantile(wall_intervals_us(num_steps, 0), 0.5);
  SLUICE_RETURN_IF_ERROR(model_->check_range());
  return times;
}

Result<CaughtStep> StepRunner::catch_step(const StepCase& step) {
  SLUICE_RETURN_IF_ERROR(open_sessions(step));
  run_ahead(
      kWarmUps, 0, [] {}, [] {});
  CaughtStep caught = model_->catch_step([&] { return start(); });
  SLUICE_RETURN_IF_ERROR(model_->check_range());
  return caught;
}

Result<Signature> StepRunner::signature() {
  close_sessions();
  SLUICE_ASSIGN_OR_RETURN(Sequence session, model_->open(0, kPromptIds + kGreedyIds));
  const auto run = [&](std::span<const int32_t> ids) -> Result<StepOutput> {
    const auto num_rows = static_cast<int32_t>(ids.size());
    RowRun rows = model_->state().next_run(session, 0, num_rows);
    rows.checkpoint_slot = kNoSlot;
    const int32_t logit_row = num_rows - 1;
    const DrawRequest request = greedy_request(session.position + num_rows);
    StepInput input = {ids, {&rows, 1}, GdnForm::kStep, {&logit_row, 1}};
    input.draws = {&request, 1};
    input.num_defined = model_->vocab_size();
    const StepOutput output = model_->forward().forward_rows(input, model_->state());
    model_->state().advance(&session, num_rows, false);
    return output;
  };
  Result<Signature> signature =
      model_->signature(bench_ids(kPromptSeed, kPromptIds, model_->vocab_size()), run);
  model_->close(&session);
  return signature;
}

}  // namespace sluice
