#include <algorithm>

#include "apps/bench.h"
#include "apps/bench/bench_setup.h"
#include "apps/bench/part_table.h"
#include "apps/bench/prefill_runner.h"
#include "apps/bench/step_flop.h"
#include "apps/model_flags.h"

namespace sluice {
namespace {

constexpr int64_t kSignatureIds = 4096;
constexpr int64_t kLong = 32768;
/// Of each group of launches, and of the peer's products.
constexpr int kRounds = 3;

std::vector<PromptCase> all_cases(const BenchPrefillOptions& options) {
  std::vector<PromptCase> cases;
  for (const int64_t tokens : options.cold) cases.push_back({tokens, 0});
  for (const int64_t past : options.past) {
    for (const int64_t tokens : options.append) cases.push_back({tokens, past});
  }
  return cases;
}

/// Prompts whose last step is taken apart: cold 512, 4k and 32k, and 200 on 8k.
bool is_taken_apart(const PromptCase& prompt) {
  if (prompt.past > 0) return prompt == PromptCase{200, 8192};
  return prompt.tokens == 512 || prompt.tokens == 4096 || prompt.tokens == kLong;
}

/// The last step's rows as a prompt of their own.
PromptCase last_step(const PromptCase& prompt, int64_t rows_max) {
  const int64_t rows = (prompt.tokens - 1) % rows_max + 1;
  return {rows, prompt.context() - rows};
}

std::string prompt_text(const PromptCase& prompt) {
  const std::string tokens = count_text(prompt.tokens);
  return prompt.past == 0 ? fmt::format("cold {}", tokens)
                          : fmt::format("{} on {}", tokens, count_text(prompt.past));
}

/// A step's groups of launches with their times.
struct StepParts {
  PromptCase prompt;
  PromptCase step;
  double step_us = 0.0;
  std::vector<PartGroup> groups = {};
};

class BenchPrefill {
 public:
  explicit BenchPrefill(const BenchPrefillOptions& options) : options_(options) {}

  Status run() {
    SLUICE_RETURN_IF_ERROR(open());
    SLUICE_ASSIGN_OR_RETURN(const Signature before, runner_->signature());
    print_bench(fmt::format("signature   {}\n", signature_text(before)));
    SLUICE_RETURN_IF_ERROR(runner_->check_cuts(before, options_.num_cuts));
    if (options_.num_cuts > 0) {
      print_bench(fmt::format("cuts        {} random ones: the same bits\n", options_.num_cuts));
    }
    print_bench("\n");
    SLUICE_RETURN_IF_ERROR(time_prompts());
    SLUICE_RETURN_IF_ERROR(take_steps_apart());
    SLUICE_ASSIGN_OR_RETURN(const Signature after, runner_->signature());
    if (after == before) return Status();
    return data_loss("the greedy tokens changed while the prompts ran: now {}",
                     signature_text(after));
  }

 private:
  Status open() {
    cases_ = all_cases(options_);
    for (const PromptCase& prompt : cases_) {
      if (prompt.context() <= kBenchContextMax) continue;
      return invalid_argument("{} make {} tokens; the limit is {}", prompt_text(prompt),
                              prompt.context(), kBenchContextMax);
    }
    SLUICE_ASSIGN_OR_RETURN(
        setup_, BenchSetup::open({options_.size, options_.format, options_.device, options_.seed,
                                  options_.prefill_math}));
    SLUICE_ASSIGN_OR_RETURN(runner_, PrefillRunner::create(weights(), setup_->backend(),
                                                           {cases_, kSignatureIds, options_.seed}));
    ceilings_.gbs = setup_->gbs();
    return Status();
  }

  const ModelWeights& weights() const { return setup_->weights(); }

  Status time_prompts() {
    print_bench(fmt::format("{:>8}{:>8}{:>7}{:>6}{:>11}{:>11}{:>11}{:>10}{:>10}{:>9}\n", "tokens",
                            "past", "steps", "runs", "gpu ms", "wall ms", "slowest", "tokens/s",
                            "TFLOP", "TFLOP/s"));
    for (const PromptCase& prompt : cases_) {
      SLUICE_ASSIGN_OR_RETURN(const PromptTimes times, runner_->time(prompt, options_.num_runs));
      print_bench(prompt_line(prompt, times));
    }
    return Status();
  }

  std::string prompt_line(const PromptCase& prompt, const PromptTimes& times) const {
    const auto flop = static_cast<double>(prompt_flop(weights(), prompt.past, prompt.tokens));
    return fmt::format(
        "{:>8}{:>8}{:>7}{:>6}{:>11.3f}{:>11.3f}{:>11.3f}{:>10.0f}{:>10.3f}{:>9.1f}\n",
        count_text(prompt.tokens), count_text(prompt.past), times.num_steps, times.num_runs,
        times.gpu_us * 1e-3, times.wall_us * 1e-3, times.wall_us_max * 1e-3,
        static_cast<double>(prompt.tokens) / times.wall_us * 1e6, flop * 1e-12,
        flop / times.gpu_us * 1e-6);
  }

  Status take_steps_apart() {
    std::vector<StepParts> steps;
    for (const PromptCase& prompt : cases_) {
      // What a step runs again from the checkpoint on cannot be caught.
      const bool begins_at_chunk = prompt.past % kGdnChunk == 0;
      if (!begins_at_chunk || (!options_.all_parts && !is_taken_apart(prompt))) continue;
      steps.push_back({prompt, last_step(prompt, runner_->rows_max())});
    }
    if (steps.empty()) return Status();
    open_peer();
    for (StepParts& parts : steps) SLUICE_RETURN_IF_ERROR(take_apart(&parts));
    for (const StepParts& parts : steps) {
      print_bench(fmt::format("\n{}, last step: {} rows behind {}, each group of launches alone:\n",
                              prompt_text(parts.prompt), parts.step.tokens, parts.step.past));
      print_bench(part_table(parts.groups, ceilings_, parts.step_us));
    }
    return Status();
  }

  /// Without one its columns stay empty.
  void open_peer() {
    const ModelConfig& c = weights().config;
    cuda::MatmulShape largest;
    largest.num_rows = static_cast<int>(runner_->rows_max());
    largest.num_out =
        static_cast<int>(std::max({2 * c.intermediate_size, c.conv_dim() + c.linear_value_dim(),
                                   2 * (c.attention_dim() + c.key_value_dim())}));
    largest.num_in = static_cast<int>(
        std::max({c.hidden_size, c.intermediate_size, c.linear_value_dim(), c.attention_dim()}));
    Result<std::unique_ptr<cuda::MatmulPeer>> peer = cuda::MatmulPeer::open(largest);
    if (peer.ok()) peer_ = *std::move(peer);
    print_bench(fmt::format("\npeer        {}\n",
                            peer.ok() ? peer_->name() : "none: " + peer.status().message()));
  }

  Status take_apart(StepParts* parts) {
    const StepCase step = {parts->step.context(), static_cast<int32_t>(parts->step.tokens), 1,
                           true};
    SLUICE_ASSIGN_OR_RETURN(const PromptTimes times, runner_->time(parts->step, options_.num_runs));
    parts->step_us = times.gpu_us;
    SLUICE_ASSIGN_OR_RETURN(const CaughtStep caught, runner_->catch_step(parts->step));
    for (LaunchGroup& group :
         group_launches(caught.launches->all(), caught.blocks, weights(), step)) {
      time_group(*caught.launches, kRounds, &group);
      const PeerTimes peer = peer_times(group);
      parts->groups.push_back({std::move(group), peer});
    }
    return Status();
  }

  /// In chains as long as the group's own, right behind it: large products wear the clock down.
  PeerTimes peer_times(const LaunchGroup& group) {
    if (peer_ == nullptr || !group.work.product.has_value()) return {};
    const cuda::MatmulShape shape = *group.work.product;
    const auto known = std::ranges::find(peer_times_, shape, &ShapeTimes::shape);
    if (known != peer_times_.end()) return known->times;
    const auto us = [&](cuda::PeerFormat format) {
      return peer_->us(format, shape, static_cast<int>(group.launches.size()), kRounds);
    };
    const PeerTimes times = {us(cuda::PeerFormat::kBf16), us(cuda::PeerFormat::kFp8Block),
                             us(cuda::PeerFormat::kFp8Tensor)};
    peer_times_.push_back({shape, times});
    const auto raise = [&](double* tflops, double product_us) {
      if (product_us > 0.0) *tflops = std::max(*tflops, shape.flop() / product_us * 1e-6);
    };
    raise(&ceilings_.bf16_tflops, times.bf16_us);
    raise(&ceilings_.fp8_tflops, times.fp8_block_us);
    raise(&ceilings_.fp8_tflops, times.fp8_tensor_us);
    return times;
  }

  struct ShapeTimes {
    cuda::MatmulShape shape;
    PeerTimes times;
  };

  const BenchPrefillOptions& options_;
  std::optional<BenchSetup> setup_;
  std::vector<PromptCase> cases_;
  std::unique_ptr<PrefillRunner> runner_;
  std::unique_ptr<cuda::MatmulPeer> peer_;
  std::vector<ShapeTimes> peer_times_;
  Ceilings ceilings_;
};

}  // namespace

int run_bench_prefill(const BenchPrefillOptions& options) {
  return exit_code_of(BenchPrefill(options).run());
}

}  // namespace sluice
