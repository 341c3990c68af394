#pragma once

#include "forward/activations.h"
#include "forward/rope.h"
#include "model/weights.h"
#include "ops/op_table.h"
#include "state/state_pool.h"

namespace sluice {

/// The ops' view of a model's full attention layers.
AttentionShape attention_shape(const ModelConfig& config);

/// What every layer of one step shares.
struct LayerContext {
  const ModelConfig& config;
  const OpTable& ops;
  OpContext& op_context;
  const RopeTable& rope;
  StatePool& state;
  std::span<const RowRun> runs;
  GdnForm gdn_form;
};

/// x <- x + mixer(norm(x)); x <- x + mlp(norm(x)), act.x in place (model-spec 3.1).
/// `mixer_idx` counts the layers of the same kind: it picks the layer's place in the state pool.
void decoder_layer(const LayerWeights& weights, int64_t mixer_idx, const LayerContext& context,
                   const Activations& act);

}  // namespace sluice
