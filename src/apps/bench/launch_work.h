#pragma once
// What each launch of a block is for, and what it cannot avoid moving and computing, from the weights, the case and the launch's place in the block.

#include <optional>
#include <string>

#include "apps/bench/step_runner.h"
#include "ops/cuda/bench_peer.h"

namespace sluice {

/// What a prompt's time is shared out over. The head and all that only norms, copies or draws is rest.
enum class LaunchPart { kProjections, kAttention, kGdn, kRest };
std::string_view part_name(LaunchPart part);

struct LaunchWork {
  std::string role;  // what it streams, or its kernel's own name
  LaunchPart part = LaunchPart::kRest;
  /// Decode: weights and state. Prompts: activations too, in and out; what one kernel of a part leaves for the next one in scratch is not counted.
  int64_t bytes = 0;
  int64_t flop = 0;
  /// Of a projection: the product that a peer is timed on. Outputs of another format than the first one's, a few rows, are left out.
  std::optional<cuda::MatmulShape> product = std::nullopt;
};

/// Of one block's launches, whose kernels are named in order. Projections ahead of a mixer's core read the first weights, those behind it the last; the first half of an MLP's
/// read gate and up. Launches of a core that share its work, a run in segments, have equal shares.
std::vector<LaunchWork> works_of(StepBlock block, std::span<const std::string> kernels,
                                 const ModelWeights& weights, const StepCase& step);

}  // namespace sluice
