#pragma once

#include "model/weights.h"

namespace sluice {

/// Calls matrix(WeightView&) and vector(VectorView&) for every tensor of a layer.
template <typename Matrix, typename Vector>
void for_each_tensor(LayerWeights& layer, Matrix&& matrix, Vector&& vector) {
  vector(layer.input_layernorm);
  vector(layer.post_attention_layernorm);
  if (auto* gdn = std::get_if<GdnLayerWeights>(&layer.mixer)) {
    for (WeightView* w :
         {&gdn->in_proj_qkv, &gdn->in_proj_z, &gdn->in_proj_b, &gdn->in_proj_a, &gdn->out_proj}) {
      matrix(*w);
    }
    for (VectorView* v : {&gdn->conv1d, &gdn->A_log, &gdn->dt_bias, &gdn->norm}) vector(*v);
  } else {
    auto& attention = std::get<AttentionLayerWeights>(layer.mixer);
    for (WeightView* w :
         {&attention.q_proj, &attention.k_proj, &attention.v_proj, &attention.o_proj}) {
      matrix(*w);
    }
    vector(attention.q_norm);
    vector(attention.k_norm);
  }
  for (WeightView* w : {&layer.mlp.gate_proj, &layer.mlp.up_proj, &layer.mlp.down_proj}) {
    matrix(*w);
  }
}

/// The same for a whole model, the draft head included; embed_tokens and lm_head, which may share memory, are left out.
template <typename Matrix, typename Vector>
void for_each_tensor(ModelWeights& weights, Matrix&& matrix, Vector&& vector) {
  for (LayerWeights& layer : weights.layers) for_each_tensor(layer, matrix, vector);
  vector(weights.norm);
  if (!weights.mtp) return;
  MtpWeights& mtp = *weights.mtp;
  for_each_tensor(mtp.layer, matrix, vector);
  matrix(mtp.fc);
  for (VectorView* v : {&mtp.pre_fc_norm_embedding, &mtp.pre_fc_norm_hidden, &mtp.norm}) vector(*v);
}

}  // namespace sluice
