#pragma once
// Writes a valid checkpoint with random weights: for tests, benchmarks and sizing a machine without a download.

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"
#include "base/status.h"
#include "model/config.h"
#include "model/tensor_table.h"

namespace sluice {

struct SynthSpec {
  ModelConfig config;
  StorageFormat format;
  uint64_t seed = 0;
  /// BF16 shards stay below this unless one tensor is larger; block FP8 has one shard a layer, as published.
  int64_t shard_bytes_max = int64_t{4} << 30;
  /// 0 means one per core.
  int num_threads = 0;
  /// False refuses a directory that already holds a checkpoint; true replaces it.
  bool overwrite = false;
};

/// The named size as published (family.h); "tiny", "0.8B", ... and BF16 or block FP8.
Result<SynthSpec> synth_spec(std::string_view size, WeightFormat linears, uint64_t seed);

/// Called on the calling thread only.
using SynthProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

struct SynthSummary {
  int64_t num_tensors = 0;
  int64_t num_files = 0;  // shards
  int64_t num_bytes = 0;  // of tensors
};

/// Writes config.json, generation_config.json, the index and the shards into `dir`, which is created if need be.
/// There is no tokenizer: an engine that needs text must be given one.
/// A tensor's values depend on (seed, name) alone: same bytes for any thread count or shard size.
/// Scaled so that activations keep their size through the layers and logits have a spread of about 2.
/// Memory: a few MB a thread. The index is written last; on failure nothing of the new checkpoint stays.
/// kInvalidArgument: there is a checkpoint already. kIo: the system's word, e.g. no space left on device.
Result<SynthSummary> write_synthetic_checkpoint(const SynthSpec& spec, const Path& dir,
                                                const SynthProgress& progress);

}  // namespace sluice
