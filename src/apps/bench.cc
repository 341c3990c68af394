#include "apps/bench.h"

#include "apps/bench/bench_setup.h"
#include "apps/bench/launch_table.h"
#include "apps/bench/step_traffic.h"
#include "apps/model_flags.h"

namespace sluice {
namespace {

constexpr int64_t kShort = 1024;
constexpr int64_t kMiddle = 8192;
constexpr int64_t kLong = 32768;
/// Sessions side by side at kMiddle: their keys and values take 1 GB each at 27B.
constexpr int32_t kMiddleSessionsMax = 16;

/// One session with all the rows, as verify runs drafts, then where it fits a session a row.
std::vector<StepCase> all_cases(const BenchStepOptions& options) {
  std::vector<StepCase> cases;
  for (const int64_t context : options.contexts) {
    for (const int32_t rows : options.rows) cases.push_back({context, rows, 1});
    for (const int32_t rows : options.rows) {
      const bool fits = context <= kShort || (context <= kMiddle && rows <= kMiddleSessionsMax);
      if (rows > 1 && fits) cases.push_back({context, rows, rows});
    }
  }
  return cases;
}

/// Steps that are taken apart: one row at 1k and 32k, 8 and 64 rows at 1k.
bool is_taken_apart(const StepCase& step) {
  if (step.num_sessions > 1) return false;
  if (step.num_rows == 1) return step.context == kShort || step.context == kLong;
  return step.context == kShort && (step.num_rows == 8 || step.num_rows == 64);
}

class BenchStep {
 public:
  explicit BenchStep(const BenchStepOptions& options) : options_(options) {}

  Status run() {
    SLUICE_RETURN_IF_ERROR(open());
    SLUICE_ASSIGN_OR_RETURN(const Signature before, runner_->signature());
    print_bench(fmt::format("signature   {}\n\n", signature_text(before)));
    SLUICE_RETURN_IF_ERROR(time_steps());
    SLUICE_RETURN_IF_ERROR(take_steps_apart());
    SLUICE_ASSIGN_OR_RETURN(const Signature after, runner_->signature());
    if (after == before) return Status();
    return data_loss("the greedy tokens changed while the steps ran: now {}",
                     signature_text(after));
  }

 private:
  Status open() {
    SLUICE_ASSIGN_OR_RETURN(
        setup_, BenchSetup::open({options_.size, options_.format, options_.device, options_.seed}));
    cases_ = all_cases(options_);
    SLUICE_ASSIGN_OR_RETURN(
        runner_, StepRunner::create(weights(), *setup_->backend().ops, cases_, options_.seed));
    print_bench(fmt::format("graphs      those of a session recorded in {:.0f} ms, as at load\n",
                            runner_->rehearsal_ms()));
    return Status();
  }

  const ModelWeights& weights() const { return setup_->weights(); }

  int64_t bytes_of(const StepCase& step) const {
    const ModelConfig& config = weights().config;
    return all_weight_bytes(weights()) + state_traffic(config, step.num_sessions, step.num_rows) +
           kv_traffic(config, step.num_sessions, step.context);
  }

  Status time_steps() {
    print_bench(fmt::format("{:>8}{:>6}{:>10}{:>10}{:>10}{:>8}{:>11}{:>17}{:>10}{:>9}{:>10}{:>9}\n",
                            "context", "rows", "sessions", "GB", "floor us", "% bw", "gpu us",
                            "middle half", "wall us", "over gpu", "in turn", "to 1 row"));
    for (const StepCase& step : cases_) {
      SLUICE_ASSIGN_OR_RETURN(const StepTimes times, runner_->time(step, options_.num_steps));
      if (times_.empty() || step.context != cases_[times_.size() - 1].context) one_row_us_ = 0.0;
      if (step.num_rows == 1) one_row_us_ = times.gpu_us;
      times_.push_back(times);
      print_bench(step_line(step, times));
    }
    return Status();
  }

  std::string step_line(const StepCase& step, const StepTimes& times) const {
    const auto bytes = static_cast<double>(bytes_of(step));
    const double floor_us = bytes / setup_->gbs() * 1e-3;
    const std::string ratio =
        one_row_us_ > 0.0 ? fmt::format("{:.3f}", times.gpu_us / one_row_us_) : "-";
    return fmt::format(
        "{:>8}{:>6}{:>10}{:>10.3f}{:>10.1f}{:>8.1f}{:>11.1f}{:>17}{:>10.1f}{:>8.2f}%{:>10.1f}{:>9}"
        "\n",
        count_text(step.context), step.num_rows, step.num_sessions, bytes * 1e-9, floor_us,
        100.0 * floor_us / times.gpu_us, times.gpu_us,
        fmt::format("{:.1f}-{:.1f}", times.gpu_us_p25, times.gpu_us_p75), times.wall_us,
        100.0 * (times.wall_us - times.gpu_us) / times.gpu_us, times.in_turn_us, ratio);
  }

  Status take_steps_apart() {
    for (size_t i = 0; i < cases_.size(); ++i) {
      const StepCase& step = cases_[i];
      if (!is_taken_apart(step)) continue;
      SLUICE_ASSIGN_OR_RETURN(const CaughtStep caught, runner_->catch_step(step));
      std::vector<LaunchGroup> groups =
          group_launches(caught.launches->all(), caught.blocks, weights(), step);
      for (LaunchGroup& group : groups) {
        time_group(*caught.launches, options_.num_steps, &group);
      }
      print_bench(
          fmt::format("\n{} row{} of one session, context {}, each group of launches alone:\n",
                      step.num_rows, step.num_rows == 1 ? "" : "s", count_text(step.context)));
      print_bench(launch_table(groups, times_[i].gpu_us, setup_->gbs()));
    }
    return Status();
  }

  const BenchStepOptions& options_;
  std::optional<BenchSetup> setup_;
  std::vector<StepCase> cases_;
  std::unique_ptr<StepRunner> runner_;
  std::vector<StepTimes> times_;
  double one_row_us_ = 0.0;  // of the context at hand
};

}  // namespace

int run_bench_step(const BenchStepOptions& options) {
  return exit_code_of(BenchStep(options).run());
}

}  // namespace sluice
