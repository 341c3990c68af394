#pragma once
// Which block of a step each of its launches belongs to.

#include <string_view>
#include <vector>

#include "ops/op_table.h"

namespace sluice {

enum class StepBlock { kOpen, kEmbed, kGdnMixer, kAttentionMixer, kMlp, kHead, kDraw, kClose };
std::string_view block_name(StepBlock block);

/// A block of the step, and its first launch; it reaches to the next block's.
struct BlockStart {
  StepBlock block;
  int first_launch;
};

/// `inner`, which outlives it, with a look at where blocks begin. One such table a process.
OpTable probed_ops(const OpTable& inner);

/// While a probe lives, steps of probed tables are not replayed: their ops are called, and it notes what `num_launches` says at each block's start.
class BlockProbe {
 public:
  explicit BlockProbe(int (*num_launches)());
  ~BlockProbe();
  BlockProbe(const BlockProbe&) = delete;
  BlockProbe& operator=(const BlockProbe&) = delete;

  const std::vector<BlockStart>& starts() const { return starts_; }
  void note(StepBlock block) { starts_.push_back({block, num_launches_()}); }

 private:
  int (*num_launches_)();
  std::vector<BlockStart> starts_;
};

}  // namespace sluice
