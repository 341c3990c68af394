#pragma once
// Steps of a model on the CUDA backend, as decode runs them, and their times.

#include "apps/bench/bench_model.h"

namespace sluice {

/// Sessions of one step, each with as many rows; `context` counts the positions that the last row of each sees, its own included.
struct StepCase {
  int64_t context = 0;
  int32_t num_rows = 1;
  int32_t num_sessions = 1;
  /// Rows of prompts, of which the last ones' logits are wanted; else all rows' are.
  bool is_prompt = false;

  int32_t num_logit_rows() const { return is_prompt ? num_sessions : num_rows; }
};

struct StepTimes {
  // Of the GPU, steps one behind the other: medians, and the middle half of them.
  double gpu_us = 0.0;
  double gpu_us_p25 = 0.0;
  double gpu_us_p75 = 0.0;
  // Of the host's clock, median from one step's end to the next one's.
  double wall_us = 0.0;     // the next step is started before the last one is awaited
  double in_turn_us = 0.0;  // each step is awaited before the next one is started
};

class StepRunner {
 public:
  /// Takes memory for the largest of `cases`. `weights` and `ops` (the CUDA backend's) outlive it.
  static Result<std::unique_ptr<StepRunner>> create(const ModelWeights& weights, const OpTable& ops,
                                                    std::span<const StepCase> cases, uint64_t seed);
  ~StepRunner();

  /// Milliseconds that recording a session's steps takes, as Engine::open does.
  double rehearsal_ms();
  Result<StepTimes> time(const StepCase& step, int num_steps);
  Result<CaughtStep> catch_step(const StepCase& step);
  Result<Signature> signature();

 private:
  StepRunner() = default;
  Status open_sessions(const StepCase& step);
  void close_sessions();
  PendingStep start();
  /// Starts num_steps steps, so many of them ahead of the one that is awaited.
  template <typename OnStarted, typename OnFinished>
  void run_ahead(int num_steps, size_t num_ahead, OnStarted&& on_started, OnFinished&& on_finished);
  std::vector<double> wall_intervals_us(int num_steps, size_t num_ahead);

  std::unique_ptr<BenchModel> model_;
  uint64_t seed_ = 0;
  std::vector<Sequence> sessions_;
  // The step at hand: the same rows again and again, so that its context stays.
  std::vector<RowRun> runs_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> logit_rows_;
  std::vector<DrawRequest> draws_;  // greedy, one a row
};

}  // namespace sluice
