#pragma once
// A model on the CUDA backend with state of its own: what the runners of the benchmarks share.

#include <functional>
#include <memory>

#include "apps/bench/block_probe.h"
#include "base/threads.h"
#include "forward/forward.h"
#include "ops/cuda/bench_support.h"

namespace sluice {

/// kGreedyIds tokens behind a fixed prompt.
struct Signature {
  std::vector<int32_t> ids;
  uint64_t hash = 0;  // of the ids and of the last row's logits, bit by bit
  bool operator==(const Signature&) const = default;
};
inline constexpr int kGreedyIds = 16;
/// "0123456789abcdef, ids 1 2 3".
std::string signature_text(const Signature& signature);

/// A step's launches and where its blocks begin.
struct CaughtStep {
  std::unique_ptr<cuda::StepLaunches> launches;
  std::vector<BlockStart> blocks;
};

class BenchModel {
 public:
  /// `weights` and `ops` (the CUDA backend's) outlive it.
  static Result<std::unique_ptr<BenchModel>> create(const ModelWeights& weights, const OpTable& ops,
                                                    const StateLimits& state_limits,
                                                    const ForwardLimits& forward_limits,
                                                    uint64_t seed);

  /// A session at `position` with room for `context` tokens. State, keys and values are random, with the sizes of a state in use, the checkpoint's at the last
  /// multiple of kGdnChunk too; at position 0 it is a new session's. Equal calls give equal values while the same sessions are open.
  Result<Sequence> open(int64_t position, int64_t context);
  void close(Sequence* session) { state_->close(session); }

  StepOutput finish(PendingStep step) { return note_range(forward_->finish(step)); }
  /// Catches the launches of the step that `start` starts, runs them and finishes the step.
  CaughtStep catch_step(const std::function<PendingStep()>& start);

  /// Draws greedily behind `prompt`. `run` runs ids behind those it ran before; its output has logits, and a drawn id where the backend drew one.
  /// kDataLoss when the GPU drew another token than one with the largest logit; kUnsupported as check_range, or when logits are not finite.
  Result<Signature> signature(
      std::vector<int32_t> prompt,
      const std::function<Result<StepOutput>(std::span<const int32_t> ids)>& run);

  /// Remembers an output that is out of range.
  StepOutput note_range(const StepOutput& output) {
    is_out_of_range_ |= output.out_of_range;
    return output;
  }
  /// kUnsupported when a number format was left since the last call: times of broken activations tell nothing.
  Status check_range();

  Forward& forward() { return *forward_; }
  StatePool& state() { return *state_; }
  const ModelWeights& weights() const { return *weights_; }
  int32_t vocab_size() const { return static_cast<int32_t>(weights_->config.vocab_size); }

 private:
  BenchModel() : pool_(1) {}
  void fill_state(const Sequence& session);

  const ModelWeights* weights_ = nullptr;
  OpTable ops_ = {};
  ThreadPool pool_;
  uint64_t seed_ = 0;
  std::optional<StatePool> state_;
  std::optional<Forward> forward_;
  bool is_out_of_range_ = false;
};

/// Ids that stand in for text; those of a shorter call are the first ones of a longer.
std::vector<int32_t> bench_ids(uint64_t seed, int64_t count, int64_t vocab_size);

/// What the backend draws greedily for a token at `position`.
DrawRequest greedy_request(int64_t position);

/// FNV-1a of bytes, going on from `hash`.
inline constexpr uint64_t kHashStart = 0xcbf29ce484222325u;
uint64_t hash_bytes(uint64_t hash, std::span<const std::byte> bytes);

}  // namespace sluice
