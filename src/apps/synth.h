#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/weight_view.h"

namespace sluice {

/// `sluice synth`: a valid checkpoint of a published size with random weights. It has no tokenizer.
struct SynthOptions {
  std::string size = "tiny";    // tiny, 0.8B, 2B, 4B, 9B, 27B
  std::string format = "bf16";  // or fp8
  int64_t num_layers = 0;       // 0: as published
  uint64_t seed = 0;
  bool force = false;   // replaces a checkpoint that is there
  int num_threads = 0;  // 0: one per core
  std::string dir;
};
/// Exit code; a progress line on standard error when that is a terminal.
int run_synth(const SynthOptions& options);

/// "bf16" or "fp8".
Result<WeightFormat> weight_format(std::string_view name);

}  // namespace sluice
