#pragma once
// config.json and generation_config.json of the family as plain numbers. Field names are the
// checkpoint's.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace sluice {

enum class LayerType { kLinearAttention, kFullAttention };
std::string_view layer_type_name(LayerType type);

/// One dense model of the family. Everything here was checked when it was parsed: sizes are
/// positive, bounded (so that products of two or three of them fit int64) and divide as the layers
/// need.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0.0f;
  bool tie_word_embeddings = false;
  std::vector<LayerType> layer_types;  // num_hidden_layers entries

  // Full attention.
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t rotary_dim = 0;  // head_dim * partial_rotary_factor: the first dims, which are rotated
  double rope_theta = 0.0;

  // Gated DeltaNet.
  int64_t linear_num_key_heads = 0;
  int64_t linear_num_value_heads = 0;
  int64_t linear_key_head_dim = 0;
  int64_t linear_value_head_dim = 0;
  int64_t linear_conv_kernel_dim = 0;

  /// 0 or 1: what config.json says. A checkpoint may still lack the tensors, or have them unsaid.
  int64_t mtp_num_hidden_layers = 0;

  std::vector<int32_t> eos_token_ids;  // config.json's own, often without the chat stop token

  int64_t num_full_attention_layers() const;
  int64_t num_linear_attention_layers() const;
  /// Width of the attention output before o_proj; not hidden_size in every size.
  int64_t attention_dim() const { return num_attention_heads * head_dim; }
  int64_t key_value_dim() const { return num_key_value_heads * head_dim; }
  int64_t linear_key_dim() const { return linear_num_key_heads * linear_key_head_dim; }
  int64_t linear_value_dim() const { return linear_num_value_heads * linear_value_head_dim; }
  /// Channels of the causal convolution: q, then k, then v.
  int64_t conv_dim() const { return 2 * linear_key_dim() + linear_value_dim(); }
};

/// Reads the text of a config.json, nested (`text_config`) or flat. `file` names it in messages.
/// kInvalidArgument: a field is missing, of the wrong kind, out of bounds or contradicts another
/// one. kUnsupported: valid, but not of this family (model_type, gate, bias, rope type,
/// quantisation, ...). Source: model-spec 1.1 to 1.3. Nothing but the fields that published files
/// omit has a default.
Result<ModelConfig> parse_model_config(std::string_view json, std::string_view file);
/// `dir`/config.json.
Result<ModelConfig> load_model_config(const Path& dir);

/// What generation_config.json recommends.
struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;
  bool do_sample = true;
  float temperature = 1.0f;
  int32_t top_k = 20;
  float top_p = 0.95f;
};

/// Absent fields take the family's published values (the members' defaults above; no ids).
Result<GenerationConfig> parse_generation_config(std::string_view json, std::string_view file);
/// `dir`/generation_config.json; the family's values when there is no such file.
Result<GenerationConfig> load_generation_config(const Path& dir);

/// Where generation stops: the ids of both files, and for the family's own vocabulary also
/// <|im_end|> and <|endoftext|>, which some published files omit. Sorted, unique, each below
/// vocab_size; ids that are not are an error.
Result<std::vector<int32_t>> stop_token_ids(const ModelConfig& config,
                                            const GenerationConfig& generation);

}  // namespace sluice
