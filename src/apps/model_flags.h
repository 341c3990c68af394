#pragma once
// Flags that several commands share, and what they turn into.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/backend.h"
#include "engine/engine.h"

namespace sluice {

struct ModelFlags {
  std::string model_dir;  // "": the embedded model
  std::string device = "auto";
  std::string isa;
  std::string prefill_math = "exact";
  int num_threads = 0;
  int64_t context_max = 0;
};

/// Unset flags follow the checkpoint's generation_config.json; the embedded model is greedy.
struct SamplingFlags {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<float> repetition_penalty;
  uint64_t seed = 0;
};

/// The checkpoint that comes with the source tree: models/tiny-agent in an ancestor of the running
/// binary's folder, or share/sluice/tiny-agent beside its bin/. kNotFound says where was looked.
Result<Path> embedded_model_dir();

/// `flags.model_dir`, or the embedded model's folder when that is empty.
Result<Path> model_dir(const ModelFlags& flags);

/// Loads the model and tells what the loader noticed on standard error. With `ids_only` it needs
/// neither tokenizer nor template.
Result<std::unique_ptr<Engine>> open_engine(const ModelFlags& flags, bool ids_only);

/// "cuda", "cpu" or one of its instruction sets, "ref".
Result<Backend> backend_named(const std::string& name);

SamplingParams sampling_params(const SamplingFlags& flags, const ModelFlags& model,
                               const GenerationConfig& defaults);

/// "sluice: error: MESSAGE" on standard error, as one line.
void print_error(const Status& status);
/// 0 for an ok status; otherwise prints it and gives 1, or what shells expect after Ctrl-C.
int exit_code_of(const Status& status);

}  // namespace sluice
