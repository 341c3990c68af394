#pragma once
// What Engine and Session share; private to this folder.

#include <optional>
#include <vector>

#include "base/threads.h"
#include "decode/sampler.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/placed_weights.h"
#include "forward/forward.h"
#include "model/checkpoint.h"
#include "state/state_pool.h"

namespace sluice {

struct Engine::Impl {
  Impl(const EngineOptions& engine_options, LoadedModel loaded, Backend chosen)
      : options(engine_options),
        model(std::move(loaded)),
        backend(chosen),
        pool(engine_options.num_threads) {}

  EngineOptions options;
  LoadedModel model;
  Backend backend;
  PlacedWeights weights;
  ThreadPool pool;
  int64_t context_max = 0;
  std::optional<Tokenizer> tokenizer;
  const chat::ChatTemplate* chat_template = nullptr;
  std::optional<StatePool> state;
  std::optional<Forward> forward;
  std::optional<Sampler> sampler;
  /// A turn is under way; a step of it may be too.
  bool is_generating = false;
  /// Sequences of the open sessions, for check_integrity.
  std::vector<const Sequence*> open_sequences;

  /// Ids below this have text or are control tokens; padding rows of the vocabulary do not.
  int32_t num_defined_ids() const;
};

/// A draw whose step was under way when its turn was cancelled.
struct DrawnAhead {
  DrawRequest request;
  Result<SampledToken> token;
};

struct Session::Impl {
  Engine::Impl* engine = nullptr;
  Sequence sequence;
  std::vector<int32_t> ids;
  /// Set only while the state stands behind all ids: what comes next if nothing else is appended.
  std::optional<DrawnAhead> drawn_ahead;
  /// Why the state can no longer be trusted; ok while it can.
  Status lost;
};

}  // namespace sluice
