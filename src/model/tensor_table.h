#pragma once
// Every tensor a text engine reads from a checkpoint of the family: names, shapes and published dtypes.
// One table serves the loader (what must be there), the byte budget (what is streamed) and the synthesiser.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight_view.h"
#include "model/config.h"
#include "model/safetensors.h"

namespace sluice {

enum class TensorRole {
  kEmbedding,        // embed_tokens
  kLmHead,           // absent when tied
  kLinear,           // stored as block FP8 in FP8 checkpoints
  kPlainLinear,      // BF16 in every published checkpoint: in_proj_a, in_proj_b, mtp.fc
  kScale,            // weight_scale_inv of a kLinear
  kZeroCentredNorm,  // multiplies as (1 + w)
  kGatedNorm,        // linear_attn.norm, multiplies plainly
  kALog,
  kDtBias,
  kConv1d,
};

struct TensorSpec {
  std::string name;
  TensorRole role = TensorRole::kLinear;
  Dtype dtype = Dtype::kBf16;
  std::vector<int64_t> shape;
  int64_t layer_idx = -1;  // of the decoder layer, or -1 outside; 0 for mtp.layers.0
  bool is_mtp = false;

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * dtype_bytes(dtype); }
};

/// How the published files of one size differ.
struct StorageFormat {
  WeightFormat linears = WeightFormat::kBf16;
  Dtype scales = Dtype::kBf16;
  Dtype gdn_vectors = Dtype::kBf16;  // A_log and linear_attn.norm: F32 in Qwen3.5, BF16 later
  bool has_mtp = true;
};

inline constexpr std::string_view kTextPrefix = "model.language_model.";
inline constexpr std::string_view kVisionPrefix = "model.visual.";
inline constexpr std::string_view kMtpPrefix = "mtp.";
inline constexpr std::string_view kScaleSuffix = "_scale_inv";  // after "<module>.weight"

/// In the order embedding, layers, final norm, head, MTP; a scale follows its weight. Source: model-spec 2.2, 2.5, 2.6.
std::vector<TensorSpec> checkpoint_tensors(const ModelConfig& config, const StorageFormat& format);

/// [ceil(num_out / 128), ceil(num_in / 128)].
std::vector<int64_t> scale_shape(int64_t num_out, int64_t num_in);

}  // namespace sluice
