#pragma once
// The fused blocks of ops/blocks.h, for decode's steps of up to 64 rows and for prompts' of any number (others are declined), and the linears by themselves.

#include "ops/op_table.h"

namespace sluice::cuda {

bool gdn_mixer_block(const GdnMixerArgs& args, OpContext& context);
bool attention_mixer_block(const AttentionMixerArgs& args, OpContext& context);
bool mlp_block(const MlpArgs& args, OpContext& context);
bool head_block(const HeadArgs& args, OpContext& context);

// The linears of ops/linear.h, any number of rows, by the same projections.
void linear(const LinearArgs& args, OpContext& context);
void linear_residual(const LinearResidualArgs& args, OpContext& context);
void gate_up(const GateUpArgs& args, OpContext& context);

}  // namespace sluice::cuda
