#pragma once
// A step's launches by what they do: launches of one place in one kind of block belong together.

#include "apps/bench/launch_work.h"

namespace sluice {

struct LaunchGroup {
  StepBlock block;
  LaunchWork work;     // of one launch
  std::string kernel;  // short
  int grid = 0;
  int threads = 0;
  bool is_chained = false;    // programmatic dependencies, as in the step
  std::vector<int> launches;  // of the step, in order
  double us = 0.0;            // one launch, in a chain of the group's own

  double step_us() const { return us * static_cast<double>(launches.size()); }
};

/// "skinny_kernel<8>" of a mangled or whole name.
std::string short_kernel_name(const std::string& name);

std::vector<LaunchGroup> group_launches(std::span<const cuda::StepLaunch> launches,
                                        std::span<const BlockStart> blocks,
                                        const ModelWeights& weights, const StepCase& step);

/// Times the group alone. Opening and closing a step are left out: they count steps, and alone would tell the host of steps that never were.
void time_group(const cuda::StepLaunches& launches, int num_rounds, LaunchGroup* group);

/// A table, its sum, and what the sum leaves of the step's own time.
std::string launch_table(std::span<const LaunchGroup> groups, double step_us, double gbs);
std::string sum_line(double sum_us, double step_us);

}  // namespace sluice
