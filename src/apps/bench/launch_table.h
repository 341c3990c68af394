#pragma once
// A step's launches by what they do: launches of one place in one kind of block belong together.

#include <string>

#include "apps/bench/step_runner.h"

namespace sluice {

struct LaunchGroup {
  StepBlock block;
  std::string role;    // what it streams, or its kernel's own name
  std::string kernel;  // short
  int grid = 0;
  int threads = 0;
  bool is_chained = false;    // programmatic dependencies, as in the step
  std::vector<int> launches;  // of the step, in order
  /// What one launch must move, from the config; 0 where only activations pass.
  int64_t bytes = 0;
  double us = 0.0;  // one launch, in a chain of the group's own
};

/// "skinny_kernel<8>" of a mangled or whole name.
std::string short_kernel_name(const std::string& name);

/// Bytes of projections and cores from the weights, the case and the place in the block: projections ahead of a mixer's core read the first weights, those behind it
/// the last; the first half of an MLP's read gate and up.
std::vector<LaunchGroup> group_launches(std::span<const cuda::StepLaunch> launches,
                                        std::span<const BlockStart> blocks,
                                        const ModelWeights& weights, const StepCase& step);

/// Catches the step and times every group alone.
Result<std::vector<LaunchGroup>> time_launches(StepRunner* runner, const ModelWeights& weights,
                                               const StepCase& step, int num_rounds);

/// A table, its sum, and what the sum leaves of the step's own time.
std::string launch_table(std::span<const LaunchGroup> groups, double step_us, double gbs);

}  // namespace sluice
