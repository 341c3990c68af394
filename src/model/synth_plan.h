#pragma once
// Which tensor of a synthetic checkpoint goes where. Used by synth.cc only.

#include <cstdint>
#include <string>
#include <vector>

#include "model/synth.h"
#include "model/tensor_table.h"

namespace sluice {

struct PlannedTensor {
  TensorSpec spec;
  size_t shard_idx = 0;
  int64_t offset = 0;    // from the start of the shard's file
  size_t scale_idx = 0;  // of an F8_E4M3 tensor: its scale's place in the plan
};

struct PlannedShard {
  std::string file_name;
  std::string header;  // length word and JSON, padded to 8 bytes
  int64_t num_bytes = 0;
  /// In file order: wider dtypes first, so that every tensor is aligned.
  std::vector<size_t> tensors;
};

struct SynthPlan {
  std::vector<PlannedTensor> tensors;
  std::vector<PlannedShard> shards;
  int64_t tensor_bytes = 0;
  int64_t file_bytes = 0;
};

/// Published layouts: BF16 in model-0000N-of-0000M.safetensors, block FP8 in layers-N, mtp and outside.
SynthPlan plan_synth(const SynthSpec& spec);

/// The text of model.safetensors.index.json.
std::string index_json(const SynthPlan& plan);

}  // namespace sluice
