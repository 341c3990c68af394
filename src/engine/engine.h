#pragma once
// The door: an Engine is a loaded model with its pools, a Session is one mutable timeline of ids.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "chat/template.h"
#include "decode/sampling_params.h"
#include "decode/stop.h"
#include "engine/placed_weights.h"
#include "model/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

class Session;

struct EngineOptions {
  Path model_dir;
  /// "auto" or "cpu"; "cuda" is refused by a build without it.
  std::string device = "auto";
  /// 0: one per usable core.
  int num_threads = 0;
  /// Longest session in tokens; KV pages for one such session are taken at start-up. 0: the smaller of the model's limit and 32,768.
  int64_t context_max = 0;
  /// Sessions that may be open at once.
  int32_t num_sessions_max = 1;
  /// Rows of one prefill step, a multiple of 64 up to 65,536. 0: what suits the backend. Cut to what the backend takes (64 for GPUs without kernels for prompts) and to the context.
  int64_t prefill_rows_max = 0;
  /// "" picks the best; else scalar | avx2 | avx512 | avx512bf16 | amx | ref (the reference backend).
  std::string isa;
  /// exact, or fp8: activations of prompts rounded to e4m3 (engine/backend.h). Needs a checkpoint in block FP8.
  std::string prefill_math = "exact";
  /// Called while a device's copy of the weights is made; null: not at all.
  OnPlacing on_placing;
  /// The chat template and tokenizer are needed unless only ids are used (benchmarks on synthetic weights).
  bool ids_only = false;
};

/// One drawn token, published after the session has recorded it.
struct TokenEvent {
  int32_t id = 0;
  /// Text that became certain with this token: whole code points, stop strings held back. May be empty.
  std::string text;
  /// The token is an added (control) token of the vocabulary, e.g. </think>: `text` is its content.
  bool is_control = false;
  TokenLogprobs logprobs;
};

enum class FinishReason { kStopToken, kStopString, kLength, kContextFull, kCancelled };
std::string_view finish_reason_name(FinishReason reason);

struct GenerateParams {
  SamplingParams sampling;
  /// 0: until a stop or the context's end.
  int64_t max_tokens = 0;
  /// Added to the model's own stop ids, unless `ignore_model_stops`.
  std::vector<int32_t> stop_ids;
  bool ignore_model_stops = false;
  std::vector<std::string> stop_strings;
  /// Asked between the steps of a long prompt; true ends the call with kCancelled, and what was prefilled stays.
  /// on_token's answer cancels between tokens.
  std::function<bool()> cancelled;
};

struct GenerateResult {
  FinishReason reason = FinishReason::kStopToken;
  int64_t num_prompt_tokens = 0;     // ids prefilled by this call
  int64_t num_generated_tokens = 0;  // the stop token included
  double ttft_s = 0.0;               // call to first token
  double decode_s = 0.0;             // first token to last
};

class Engine {
 public:
  struct Impl;
  /// Loads a published checkpoint. Every error names file, expected and found.
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const;
  const GenerationConfig& generation_config() const;
  /// Pre: not opened with ids_only.
  const Tokenizer& tokenizer() const;
  const chat::ChatTemplate& chat_template() const;
  /// What the loader noticed: probable faults and notes.
  const Diagnostics& diagnostics() const;
  int64_t context_max() const;
  std::string_view backend_name() const;
  int num_threads() const;
  /// Bytes of weights that were copied to a device, and how long that took. Zero where the checkpoint's map is used.
  size_t placed_bytes() const;
  double placing_s() const;

  /// kResourceExhausted naming num_sessions_max when none is free.
  Result<std::unique_ptr<Session>> create_session();

  /// Free lists add up, slots and pages are owned once. Stops the process when not.
  void check_integrity() const;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Not thread-safe; outlived by its Engine.
class Session {
 public:
  struct Impl;
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Records ids that the next generate() prefills. Recorded ids are the truth; nothing is tokenised twice.
  /// kInvalidArgument for an id without text or outside the vocabulary, kResourceExhausted past context_max;
  /// the session is unchanged then.
  Status append(std::span<const int32_t> ids);

  /// Prefills what is pending and draws tokens until a stop. `on_token` sees each token once it is recorded and
  /// the state stands at the token before it; it may return false to cancel. The last token's state follows
  /// with the next call; where a backend draws, a cancelled one's may have followed already.
  /// Pre: something has been appended. A turn that has ended may be gone on with as it is, a cancelled one with the same sampling: else
  /// kInvalidArgument.
  /// One call at a time for all the engine's sessions: kInvalidArgument from inside on_token, which must not throw either (a step may be under way).
  Result<GenerateResult> generate(const GenerateParams& params,
                                  const std::function<bool(const TokenEvent&)>& on_token);

  /// All ids so far: appended and drawn.
  std::span<const int32_t> ids() const;
  /// How many of ids() the state has advanced over.
  int64_t num_committed() const;

 private:
  friend class Engine;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
