#pragma once
// The weights of one model, as forward reads them. Views own nothing: LoadedModel (checkpoint.h)
// keeps the memory.

#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/bf16.h"
#include "base/view.h"
#include "base/weight_view.h"
#include "model/config.h"

namespace sluice {

/// A small tensor, widened exactly to fp32; 64-byte aligned.
using VectorView = std::span<const float>;

/// One Gated DeltaNet mixer. H = hidden_size, K = linear_key_dim, V = linear_value_dim, Hv =
/// linear_num_value_heads.
struct GdnLayerWeights {
  WeightView in_proj_qkv;  // [2 K + V, H], rows q, then k, then v
  WeightView in_proj_z;    // [V, H]
  WeightView in_proj_b;    // [Hv, H]
  WeightView in_proj_a;    // [Hv, H]
  VectorView conv1d;       // [2 K + V, 4] row-major; column 3 meets the newest input
  VectorView A_log;        // [Hv], as stored (F32 or BF16)
  VectorView dt_bias;      // [Hv]
  VectorView norm;         // [linear_value_head_dim], multiplies plainly (no 1 +); bf16 values
  WeightView out_proj;     // [H, V]
};

/// One gated attention mixer. Q = attention_dim, KV = key_value_dim.
struct AttentionLayerWeights {
  WeightView q_proj;  // [2 Q, H], per head: head_dim query rows, then head_dim gate rows
  WeightView k_proj;  // [KV, H]
  WeightView v_proj;  // [KV, H]
  WeightView o_proj;  // [H, Q]
  VectorView q_norm;  // [head_dim], zero-centred
  VectorView k_norm;  // [head_dim], zero-centred
};

struct MlpWeights {
  WeightView gate_proj;  // [intermediate_size, H]
  WeightView up_proj;    // [intermediate_size, H]
  WeightView down_proj;  // [H, intermediate_size]
};

struct LayerWeights {
  VectorView input_layernorm;           // [H], zero-centred
  VectorView post_attention_layernorm;  // [H], zero-centred
  std::variant<GdnLayerWeights, AttentionLayerWeights> mixer;
  MlpWeights mlp;
};

/// The draft head; it shares embed_tokens and lm_head with the model.
struct MtpWeights {
  WeightView fc;                     // [H, 2 H], the embedding half first
  VectorView pre_fc_norm_embedding;  // [H], zero-centred
  VectorView pre_fc_norm_hidden;     // [H], zero-centred
  LayerWeights layer;                // full attention
  VectorView norm;                   // [H], zero-centred
};

struct ModelWeights {
  ModelConfig config;                // mtp_num_hidden_layers is 1 wherever mtp is there
  MatView<const bf16> embed_tokens;  // [vocab_size, H]
  std::vector<LayerWeights> layers;  // mixer's alternative agrees with config.layer_types
  VectorView norm;                   // [H], zero-centred
  WeightView lm_head;                // [vocab_size, H]; tied: the memory of embed_tokens
  std::optional<MtpWeights> mtp;
};

}  // namespace sluice
