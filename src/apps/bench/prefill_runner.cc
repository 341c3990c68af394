#include "apps/bench/prefill_runner.h"

#include <algorithm>
#include <chrono>

#include "apps/bench/statistics.h"
#include "base/random_values.h"
#include "decode/round.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

/// Runs of one case end behind so much time.
constexpr double kTimeMaxUs = 6e6;
/// Longer prompts need no warming up.
constexpr int64_t kWarmedTokensMax = 4096;

constexpr uint64_t kPromptSeed = 1;
constexpr int kPiecesMax = 8;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

StateLimits state_limits(const PrefillRunnerOptions& options) {
  StateLimits limits;
  limits.context_max = options.signature_ids + kGreedyIds;
  for (const PromptCase& prompt : options.cases) {
    limits.context_max = std::max(limits.context_max, prompt.context());
  }
  const int64_t pages = pages_for(limits.context_max);
  limits.context_max = pages * kKvPageTokens;
  limits.num_pages = static_cast<int32_t>(pages);
  return limits;
}

}  // namespace

Result<std::unique_ptr<PrefillRunner>> PrefillRunner::create(const ModelWeights& weights,
                                                             const Backend& backend,
                                                             const PrefillRunnerOptions& options) {
  std::unique_ptr<PrefillRunner> runner(new PrefillRunner);
  runner->form_ = backend.prefill_form;
  runner->rows_max_ = backend.prefill_rows;
  runner->signature_ids_ = options.signature_ids;
  runner->seed_ = options.seed;
  const StateLimits limits = state_limits(options);
  runner->ids_ = bench_ids(kPromptSeed, limits.context_max, weights.config.vocab_size);
  SLUICE_ASSIGN_OR_RETURN(
      runner->model_,
      BenchModel::create(weights, *backend.ops, limits,
                         {runner->rows_max_, 1, limits.context_max, backend.prefill_math},
                         options.seed));
  return runner;
}

std::span<const int32_t> PrefillRunner::ids_of(const PromptCase& prompt) const {
  return std::span(ids_).first(static_cast<size_t>(prompt.context()));
}

PrefillOptions PrefillRunner::drawing(const DrawRequest& request) const {
  return {form_, rows_max_, {&request, model_->vocab_size()}};
}

Result<PrefillRunner::Run> PrefillRunner::run_once(const PromptCase& prompt) {
  const DrawRequest request = greedy_request(prompt.context());
  const PrefillOptions options = drawing(request);
  SLUICE_ASSIGN_OR_RETURN(Sequence session, model_->open(prompt.past, prompt.context()));
  cuda::await_gpu();
  Run run;
  cuda::GpuClock clock;
  const Clock::time_point start = Clock::now();
  clock.mark();
  StepOutput output;
  for (bool is_last = false; !is_last; ++run.num_steps) {
    const PendingPrefill pending =
        start_prefill_step(model_->forward(), model_->state(), ids_of(prompt), options, &session);
    is_last = pending.is_last;
    if (is_last) clock.mark();
    output = model_->note_range(
        finish_prefill_step(model_->forward(), model_->state(), pending, options, &session));
  }
  run.wall_us = us_since(start);
  run.gpu_us = clock.intervals_us().front();
  if (!output.drawn.empty()) run.drawn = output.drawn[0];
  model_->close(&session);
  return run;
}

Result<PromptTimes> PrefillRunner::time(const PromptCase& prompt, int num_runs) {
  std::vector<double> gpu_us;
  std::vector<double> wall_us;
  double total_us = 0.0;
  SLUICE_ASSIGN_OR_RETURN(Run run, run_once(prompt));
  const Run first = run;
  if (prompt.tokens <= kWarmedTokensMax) {
    SLUICE_ASSIGN_OR_RETURN(run, run_once(prompt));
  }
  for (;;) {
    if (run.drawn != first.drawn) {
      return data_loss("two runs of one prompt drew tokens {} and {}", first.drawn, run.drawn);
    }
    gpu_us.push_back(run.gpu_us);
    wall_us.push_back(run.wall_us);
    total_us += run.wall_us;
    if (std::ssize(wall_us) == num_runs || total_us >= kTimeMaxUs) break;
    SLUICE_ASSIGN_OR_RETURN(run, run_once(prompt));
  }
  SLUICE_RETURN_IF_ERROR(model_->check_range());
  PromptTimes times;
  times.num_runs = static_cast<int>(wall_us.size());
  times.num_steps = first.num_steps;
  times.gpu_us = quantile(gpu_us, 0.5);
  times.wall_us = quantile(wall_us, 0.5);
  times.wall_us_max = quantile(wall_us, 1.0);
  times.drawn = first.drawn;
  return times;
}

Result<CaughtStep> PrefillRunner::catch_step(const PromptCase& prompt) {
  SLUICE_CHECK_LE(prompt.tokens, rows_max_);
  SLUICE_CHECK_EQ(prompt.past % kGdnChunk, 0);
  const DrawRequest request = greedy_request(prompt.context());
  SLUICE_ASSIGN_OR_RETURN(Sequence session, model_->open(prompt.past, prompt.context()));
  cuda::await_gpu();
  CaughtStep caught = model_->catch_step([&] {
    return start_prefill_step(model_->forward(), model_->state(), ids_of(prompt), drawing(request),
                              &session)
        .step;
  });
  model_->close(&session);
  SLUICE_RETURN_IF_ERROR(model_->check_range());
  return caught;
}

PrefillRunner::Cut PrefillRunner::random_cut(uint64_t key) const {
  const auto below = [&](uint64_t idx, int64_t limit) {
    return static_cast<int64_t>(random_bits(key, idx) % static_cast<uint64_t>(limit));
  };
  Cut cut;
  const int64_t num_pieces = 2 + below(0, kPiecesMax - 1);
  for (int64_t i = 1; i < num_pieces; ++i) {
    cut.ends.push_back(1 + below(static_cast<uint64_t>(i), signature_ids_ - 1));
  }
  cut.ends.push_back(signature_ids_);
  std::sort(cut.ends.begin(), cut.ends.end());
  cut.ends.erase(std::unique(cut.ends.begin(), cut.ends.end()), cut.ends.end());
  cut.rows_max = kGdnChunk * (1 + below(kPiecesMax, rows_max_ / kGdnChunk));
  return cut;
}

Result<Signature> PrefillRunner::signature_of(const Cut& cut) {
  SLUICE_ASSIGN_OR_RETURN(Sequence session, model_->open(0, signature_ids_ + kGreedyIds));
  Forward& forward = model_->forward();
  StatePool& state = model_->state();
  const PrefillOptions options = {form_, cut.rows_max, {}};
  const std::span<const int32_t> prompt = ids_of({signature_ids_, 0});
  for (const int64_t end : cut.ends) {
    if (end == signature_ids_) continue;
    model_->note_range(
        prefill(forward, state, prompt.first(static_cast<size_t>(end)), options, &session));
  }
  const auto run = [&](std::span<const int32_t> ids) -> Result<StepOutput> {
    if (ids.size() > 1) return prefill(forward, state, ids, options, &session);
    return decode_step(forward, state, ids[0], form_, &session);
  };
  Result<Signature> signature =
      model_->signature(std::vector<int32_t>(prompt.begin(), prompt.end()), run);
  model_->close(&session);
  return signature;
}

Status PrefillRunner::check_cuts(const Signature& whole, int num_cuts) {
  for (int i = 0; i < num_cuts; ++i) {
    const Cut cut = random_cut(random_bits(seed_, static_cast<uint64_t>(i)));
    SLUICE_ASSIGN_OR_RETURN(const Signature signature, signature_of(cut));
    if (signature == whole) continue;
    return data_loss("a prompt cut at {} with {} rows a step has the signature {}, whole {}",
                     fmt::join(cut.ends, ", "), cut.rows_max, signature_text(signature),
                     signature_text(whole));
  }
  return Status();
}

}  // namespace sluice
