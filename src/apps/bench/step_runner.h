#pragma once
// Steps of a model on the CUDA backend, as decode runs them, and their times.

#include <memory>

#include "apps/bench/block_probe.h"
#include "base/threads.h"
#include "forward/forward.h"
#include "ops/cuda/bench_support.h"

namespace sluice {

/// Sessions of one step, each with as many rows; `context` counts the positions that the last row of each sees, its own included.
struct StepCase {
  int64_t context = 0;
  int32_t num_rows = 1;
  int32_t num_sessions = 1;
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

/// 16 greedy tokens behind a fixed prompt.
struct Signature {
  std::vector<int32_t> ids;
  uint64_t hash = 0;  // of the ids and of the last row's logits, bit by bit
  bool operator==(const Signature&) const = default;
};

/// A step's launches and where its blocks begin.
struct CaughtStep {
  std::unique_ptr<cuda::StepLaunches> launches;
  std::vector<BlockStart> blocks;
};

class StepRunner {
 public:
  /// Takes memory for the largest of `cases`. `weights` and `ops` (the CUDA backend's) outlive it.
  static Result<std::unique_ptr<StepRunner>> create(const ModelWeights& weights, const OpTable& ops,
                                                    std::span<const StepCase> cases, uint64_t seed);
  ~StepRunner();

  /// kUnsupported when a number format was left: times of broken activations tell nothing.
  Result<StepTimes> time(const StepCase& step, int num_steps);
  Result<CaughtStep> catch_step(const StepCase& step);
  Result<Signature> signature();

 private:
  StepRunner() : pool_(1) {}
  Status open_sessions(const StepCase& step);
  void close_sessions();
  void fill_state(const Sequence& sequence);
  PendingStep start();
  void finish(const PendingStep& step);
  /// Starts num_steps steps, so many of them ahead of the one that is awaited.
  template <typename OnStarted, typename OnFinished>
  void run_ahead(int num_steps, size_t num_ahead, OnStarted&& on_started, OnFinished&& on_finished);
  std::vector<double> wall_intervals_us(int num_steps, size_t num_ahead);
  Status check_range() const;

  const ModelWeights* weights_ = nullptr;
  OpTable ops_ = {};
  ThreadPool pool_;
  uint64_t seed_ = 0;
  std::optional<StatePool> state_;
  std::optional<Forward> forward_;
  std::vector<Sequence> sessions_;
  // The step at hand: the same rows again and again, so that its context stays.
  std::vector<RowRun> runs_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> logit_rows_;
  std::vector<DrawRequest> draws_;  // greedy, one a row
  bool is_out_of_range_ = false;
};

/// FNV-1a of bytes, going on from `hash`.
inline constexpr uint64_t kHashStart = 0xcbf29ce484222325u;
uint64_t hash_bytes(uint64_t hash, std::span<const std::byte> bytes);

}  // namespace sluice
