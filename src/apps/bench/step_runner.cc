#include "apps/bench/step_runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>

#include "decode/draw_request.h"
#include "model/synth_values.h"
#include "verify/model_runner.h"

namespace sluice {
namespace {

constexpr int kWarmUps = 5;
/// Steps that keep the GPU busy without a pause; step_block.h allows one more.
constexpr size_t kBusyAhead = 3;
constexpr int64_t kRowsMax = 64;
constexpr int32_t kSlotsPerSession = 2;

constexpr int32_t kPromptIds = 48;
constexpr int kGreedyIds = 16;

// Sizes of a state in use: keys and values as normed projections have them.
constexpr float kKvSigma = 1.0f;
constexpr float kConvSigma = 1.0f;
constexpr float kRecurrentSigma = 0.05f;

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::vector<int32_t> random_ids(uint64_t seed, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits(seed, static_cast<uint64_t>(i));
    ids.push_back(static_cast<int32_t>(bits % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

DrawRequest greedy_request(int64_t position) {
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  return draw_request(greedy, position);
}

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

uint64_t hash_bytes(uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001b3u;
  return hash;
}

Result<std::unique_ptr<StepRunner>> StepRunner::create(const ModelWeights& weights,
                                                       const OpTable& ops,
                                                       std::span<const StepCase> cases,
                                                       uint64_t seed) {
  std::unique_ptr<StepRunner> runner(new StepRunner);
  runner->weights_ = &weights;
  runner->ops_ = probed_ops(ops);
  runner->seed_ = seed;
  const StateLimits limits = state_limits(cases);
  SLUICE_ASSIGN_OR_RETURN(runner->state_, StatePool::create(weights.config, limits, *ops.memory));
  SLUICE_ASSIGN_OR_RETURN(runner->forward_,
                          Forward::create(weights, runner->ops_, runner->pool_,
                                          {kRowsMax, kRowsMax, limits.context_max}));
  return runner;
}

StepRunner::~StepRunner() {
  close_sessions();
}

void StepRunner::fill_state(const Sequence& sequence) {
  const StateBytes bytes = state_bytes(weights_->config);
  const auto key = [&](int32_t place) { return random_bits(seed_, static_cast<uint64_t>(place)); };
  // A layer's views begin where its own values do; the first layer's, where the whole slot or page does.
  cuda::fill_normal(state_->recurrent_layer(0).slot(sequence.slot),
                    bytes.recurrent_per_slot / static_cast<int64_t>(sizeof(float)),
                    key(sequence.slot), kRecurrentSigma);
  cuda::fill_normal(state_->conv_layer(0).column(sequence.slot, 0),
                    bytes.conv_per_slot / static_cast<int64_t>(sizeof(bf16)), key(~sequence.slot),
                    kConvSigma);
  for (const int32_t page : sequence.page_table) {
    cuda::fill_normal(state_->kv_layer(0).k_row(page, 0, 0),
                      bytes.page / static_cast<int64_t>(sizeof(bf16)), key(page), kKvSigma);
  }
}

Status StepRunner::open_sessions(const StepCase& step) {
  close_sessions();
  const int32_t rows_each = step.num_rows / step.num_sessions;
  for (int32_t s = 0; s < step.num_sessions; ++s) {
    SLUICE_ASSIGN_OR_RETURN(Sequence sequence, state_->open());
    sessions_.push_back(std::move(sequence));
    Sequence& session = sessions_.back();
    SLUICE_RETURN_IF_ERROR(state_->reserve(&session, step.context));
    fill_state(session);
    state_->advance(&session, step.context - rows_each, false);
    runs_.push_back(state_->next_run(session, s * rows_each, rows_each));
    runs_.back().checkpoint_slot = kNoSlot;
  }
  ids_ = random_ids(seed_, step.num_rows, weights_->config.vocab_size);
  logit_rows_.resize(static_cast<size_t>(step.num_rows));
  std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
  draws_.assign(static_cast<size_t>(step.num_rows), greedy_request(step.context));
  is_out_of_range_ = false;
  return Status();
}

void StepRunner::close_sessions() {
  for (Sequence& session : sessions_) state_->close(&session);
  sessions_.clear();
  runs_.clear();
}

PendingStep StepRunner::start() {
  StepInput input = {ids_, runs_, GdnForm::kStep, logit_rows_};
  input.draws = draws_;
  input.num_defined = static_cast<int32_t>(weights_->config.vocab_size);
  input.wants_logits = false;
  return forward_->start_rows(input, *state_);
}

void StepRunner::finish(const PendingStep& step) {
  is_out_of_range_ |= forward_->finish(step).out_of_range;
}

template <typename OnStarted, typename OnFinished>
void StepRunner::run_ahead(int num_steps, size_t num_ahead, OnStarted&& on_started,
                           OnFinished&& on_finished) {
  std::deque<PendingStep> pending;
  for (int i = 0; i < num_steps; ++i) {
    pending.push_back(start());
    on_started();
    if (pending.size() <= num_ahead) continue;
    finish(pending.front());
    pending.pop_front();
    on_finished();
  }
  for (const PendingStep& step : pending) {
    finish(step);
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
  SLUICE_RETURN_IF_ERROR(check_range());
  return times;
}

Status StepRunner::check_range() const {
  if (!is_out_of_range_) return Status();
  return unsupported("an activation of the synthetic model left the kernels' number format");
}

Result<CaughtStep> StepRunner::catch_step(const StepCase& step) {
  SLUICE_RETURN_IF_ERROR(open_sessions(step));
  run_ahead(
      kWarmUps, 0, [] {}, [] {});
  CaughtStep caught;
  const BlockProbe probe(cuda::StepLaunches::num_caught);
  cuda::StepLaunches::begin_catching();
  const PendingStep pending = start();
  caught.launches = cuda::StepLaunches::end_catching();
  finish(pending);
  caught.blocks = probe.starts();
  SLUICE_RETURN_IF_ERROR(check_range());
  return caught;
}

Result<Signature> StepRunner::signature() {
  close_sessions();
  is_out_of_range_ = false;
  SLUICE_ASSIGN_OR_RETURN(Sequence session, state_->open());
  SLUICE_RETURN_IF_ERROR(state_->reserve(&session, kPromptIds + kGreedyIds));
  std::vector<int32_t> ids = random_ids(1, kPromptIds, weights_->config.vocab_size);
  Signature signature;
  signature.hash = kHashStart;
  for (int i = 0; i < kGreedyIds; ++i) {
    const auto num_rows = static_cast<int32_t>(ids.size());
    RowRun run = state_->next_run(session, 0, num_rows);
    run.checkpoint_slot = kNoSlot;
    const int32_t logit_row = num_rows - 1;
    const DrawRequest request = greedy_request(session.position + num_rows);
    StepInput input = {ids, {&run, 1}, GdnForm::kStep, {&logit_row, 1}};
    input.draws = {&request, 1};
    input.num_defined = static_cast<int32_t>(weights_->config.vocab_size);
    const StepOutput output = forward_->forward_rows(input, *state_);
    is_out_of_range_ |= output.out_of_range;
    state_->advance(&session, num_rows, false);
    ids = {output.drawn[0]};
    const int32_t best =
        best_id({output.logits.row(0), static_cast<size_t>(output.logits.num_cols)});
    const bf16* logits = output.logits.row(0);
    if (ids[0] < 0 || to_float(logits[ids[0]]) < to_float(logits[best])) {
      return data_loss("the GPU drew token {}; token {} has the largest logit", ids[0], best);
    }
    signature.ids.push_back(ids[0]);
    signature.hash = hash_bytes(signature.hash, std::as_bytes(std::span(ids)));
    if (i + 1 < kGreedyIds) continue;
    const std::span row(output.logits.row(0), static_cast<size_t>(output.logits.num_cols));
    signature.hash = hash_bytes(signature.hash, std::as_bytes(row));
    for (const bf16 logit : row) {
      if (!std::isfinite(to_float(logit)))
        return unsupported("the synthetic model's logits are not finite");
    }
  }
  state_->close(&session);
  SLUICE_RETURN_IF_ERROR(check_range());
  return signature;
}

}  // namespace sluice
