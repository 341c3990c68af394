#include "verify/identity.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "verify/fingerprint.h"

namespace sluice {
namespace {

/// Rows at the end of the prompt that are run as one step and as many.
constexpr int64_t kRows = 24;
constexpr int64_t kIdsMin = kRows + 16;

using Ids = std::span<const int32_t>;

/// Counts comparisons that differ and remembers the first.
struct Differences {
  int64_t num_runs = 0;
  int64_t num_different = 0;
  std::string first;

  void add(const std::string& run, const Fingerprint& a, const Fingerprint& b) {
    ++num_runs;
    const std::string part = first_difference(a, b);
    if (part.empty()) return;
    if (num_different++ == 0) first = fmt::format("{}: {}", run, part);
  }

  Check check(std::string name, std::string_view what) const {
    std::string text = fmt::format("{} {}", num_runs, what);
    if (num_different > 0) text += fmt::format("; first to differ: {}", first);
    return bounded(std::move(name), "bits", static_cast<double>(num_different), 0.0,
                   std::move(text));
  }
};

class IdentityChecks {
 public:
  IdentityChecks(const ModelWeights& weights, const Backend& backend, Ids ids,
                 const IdentityOptions& options)
      : weights_(weights), backend_(backend), ids_(ids), options_(options), rng_(options.seed) {}

  Status run(VerifyReport* report) {
    SLUICE_ASSIGN_OR_RETURN(runner_, make_runner(options_.num_threads, 1));
    whole_ = prompt_run(*runner_);
    report->checks.push_back(repeat());
    report->checks.push_back(cuts());
    report->checks.push_back(rows());
    report->checks.push_back(runner_->range_check("bits"));
    SLUICE_ASSIGN_OR_RETURN(Check threads, thread_counts());
    report->checks.push_back(std::move(threads));
    SLUICE_ASSIGN_OR_RETURN(Check neighbours, neighbours_in_a_step());
    report->checks.push_back(std::move(neighbours));
    return Status();
  }

 private:
  Result<std::unique_ptr<ModelRunner>> make_runner(int num_threads, int32_t num_sequences) const {
    RunnerLimits limits;
    limits.num_threads = num_threads;
    limits.context_max = static_cast<int64_t>(ids_.size());
    limits.num_sequences = num_sequences;
    return ModelRunner::create(weights_, backend_, limits);
  }

  Fingerprint prompt_run(ModelRunner& runner) const {
    Fingerprint print;
    Sequence sequence = runner.open();
    runner.prompt(ids_, &sequence, [&](int64_t first, const StepOutput& output) {
      print.add_rows(*backend_.ops->memory, fmt::format("from {}", first), output);
    });
    print.add_state(runner, sequence);
    runner.close(&sequence);
    return print;
  }

  Check repeat() {
    Differences differences;
    differences.add("again", whole_, prompt_run(*runner_));
    return differences.check("repeat", "repetition of the prompt");
  }

  /// The prompt as the engine runs it, ending at each of `ends` first.
  Fingerprint cut_run(const std::vector<int64_t>& ends) {
    Sequence sequence = runner_->open();
    StepOutput output;
    for (const int64_t end : ends) {
      output = runner_->engine_prefill(ids_.first(static_cast<size_t>(end)), &sequence);
    }
    Fingerprint print;
    // Rows of the last step before the last one are not part of the promise: it may hold any number of them.
    output.hidden = output.hidden.rows(output.hidden.num_rows - 1, 1);
    print.add_rows(*backend_.ops->memory, "last", output);
    print.add_state(*runner_, sequence);
    runner_->close(&sequence);
    return print;
  }

  Check cuts() {
    const auto num_ids = static_cast<int64_t>(ids_.size());
    Differences differences;
    const Fingerprint whole = cut_run({num_ids});
    for (int i = 0; i < options_.num_cuts; ++i) {
      std::vector<int64_t> ends = {num_ids};
      const auto num_pieces = 1 + static_cast<int64_t>(rng_() % 8);
      for (int64_t k = 0; k < num_pieces; ++k) {
        ends.push_back(1 + static_cast<int64_t>(rng_() % static_cast<uint64_t>(num_ids - 1)));
      }
      std::sort(ends.begin(), ends.end());
      ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
      differences.add(fmt::format("cut at {}", fmt::join(ends, ", ")), whole, cut_run(ends));
    }
    return differences.check("cuts", fmt::format("random cuts of {} ids", num_ids));
  }

  /// The last kRows ids behind the rest of the prompt, in steps of `per_step` rows.
  Fingerprint rows_run(int64_t per_step) {
    const auto head = static_cast<int64_t>(ids_.size()) - kRows;
    Sequence sequence = runner_->open();
    runner_->prompt(ids_.first(static_cast<size_t>(head)), &sequence,
                    [](int64_t, const StepOutput&) {});
    Fingerprint print;
    for (int64_t first = head; first < head + kRows; first += per_step) {
      const auto count = static_cast<size_t>(std::min(per_step, head + kRows - first));
      const StepOutput output =
          runner_->rows(ids_.subspan(static_cast<size_t>(first), count), &sequence);
      for (int64_t i = 0; i < output.logits.num_rows; ++i) {
        const StepOutput row = {output.hidden.rows(i, 1), output.logits.rows(i, 1)};
        print.add_rows(*backend_.ops->memory, fmt::format("position {}", first + i), row);
      }
    }
    print.add_state(*runner_, sequence);
    runner_->close(&sequence);
    return print;
  }

  Check rows() {
    Differences differences;
    const Fingerprint one = rows_run(1);
    for (const int64_t per_step : {2, 3, 5, 8, 16, 24}) {
      differences.add(fmt::format("{} rows a step", per_step), one, rows_run(per_step));
    }
    return differences.check("row = rows", fmt::format("step sizes over {} rows", kRows));
  }

  Result<Check> thread_counts() const {
    Differences differences;
    for (const int num_threads : {1, 2, 3}) {
      SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner,
                              make_runner(num_threads, 1));
      differences.add(fmt::format("{} threads", num_threads), whole_, prompt_run(*runner));
    }
    return differences.check("threads", "thread counts");
  }

  /// Three sessions that share every step, each with a part of the ids, against each alone.
  Result<Check> neighbours_in_a_step() const {
    constexpr int32_t kSessions = 3;
    SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<ModelRunner> runner, make_runner(0, kSessions));
    const size_t share = std::min<size_t>(ids_.size() / kSessions, kRows);
    std::vector<Fingerprint> alone(kSessions);
    std::vector<Fingerprint> together(kSessions);
    std::vector<Sequence> sequences;
    for (size_t s = 0; s < kSessions; ++s) {
      Sequence sequence = runner->open();
      for (size_t i = 0; i < share; ++i) {
        alone[s].add_rows(*backend_.ops->memory, fmt::format("position {}", i),
                          runner->rows(ids_.subspan(s * share + i, 1), &sequence));
      }
      alone[s].add_state(*runner, sequence);
      runner->close(&sequence);
    }
    for (size_t s = 0; s < kSessions; ++s) sequences.push_back(runner->open());
    for (size_t i = 0; i < share; ++i) shared_step(*runner, i, share, &sequences, &together);
    Differences differences;
    for (size_t s = 0; s < kSessions; ++s) {
      together[s].add_state(*runner, sequences[s]);
      differences.add(fmt::format("session {}", s), alone[s], together[s]);
    }
    return differences.check("neighbours", "sessions in shared steps against each alone");
  }

  void shared_step(ModelRunner& runner, size_t i, size_t share, std::vector<Sequence>* sequences,
                   std::vector<Fingerprint>* prints) const {
    const size_t num_sessions = sequences->size();
    std::vector<int32_t> ids;
    std::vector<int32_t> rows(num_sessions);
    std::vector<RowRun> runs;
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t s = 0; s < num_sessions; ++s) {
      ids.push_back(ids_[s * share + i]);
      runs.push_back(runner.state().next_run((*sequences)[s], static_cast<int32_t>(s), 1));
      runs.back().checkpoint_slot = kNoSlot;
    }
    const StepOutput output =
        runner.forward().forward_rows({ids, runs, GdnForm::kStep, rows}, runner.state());
    for (size_t s = 0; s < num_sessions; ++s) {
      const auto row = static_cast<int64_t>(s);
      (*prints)[s].add_rows(*backend_.ops->memory, fmt::format("position {}", i),
                            {output.hidden.rows(row, 1), output.logits.rows(row, 1)});
      runner.state().advance(&(*sequences)[s], 1, false);
    }
  }

  const ModelWeights& weights_;
  Backend backend_;
  Ids ids_;
  IdentityOptions options_;
  std::mt19937_64 rng_;
  std::unique_ptr<ModelRunner> runner_;
  Fingerprint whole_;
};

}  // namespace

Status check_identity(const ModelWeights& weights, const Backend& backend,
                      std::span<const int32_t> ids, const IdentityOptions& options,
                      VerifyReport* report) {
  if (static_cast<int64_t>(ids.size()) < kIdsMin) {
    return invalid_argument("{} ids to run; expected at least {}", ids.size(), kIdsMin);
  }
  return IdentityChecks(weights, backend, ids, options).run(report);
}

}  // namespace sluice
