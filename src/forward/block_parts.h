#pragma once
// A block of a layer: the backend's fused form where it has one and takes the call, else the parts of ops/blocks.h.

#include "ops/op_table.h"

namespace sluice {

void gdn_mixer(const OpTable& ops, const GdnMixerArgs& args, OpContext& context);
void attention_mixer(const OpTable& ops, const AttentionMixerArgs& args, OpContext& context);
void mlp(const OpTable& ops, const MlpArgs& args, OpContext& context);
void head(const OpTable& ops, const HeadArgs& args, OpContext& context);

}  // namespace sluice
