#pragma once
// The ref backend's ops, one file each. Scalar, slow, obvious: everything inside an op is double,
// and a value is rounded only where the op's contract (ops/*.h) says so. State is fp32 in memory,
// so it is rounded at each store. Single-threaded; unlike the other backends it takes its scratch
// from the heap, so that no sizing code stands between a reader and the formula.

#include "ops/op_table.h"

namespace sluice::ref {

void embed(const EmbedArgs& args, OpContext& context);
void rms_norm(const RmsNormArgs& args, OpContext& context);
void gated_rms_norm(const GatedRmsNormArgs& args, OpContext& context);
void linear(const LinearArgs& args, OpContext& context);
void linear_residual(const LinearResidualArgs& args, OpContext& context);
void gate_up(const GateUpArgs& args, OpContext& context);
void conv1d(const Conv1dArgs& args, OpContext& context);
void gdn_gates(const GdnGatesArgs& args, OpContext& context);
void gdn_step(const GdnArgs& args, OpContext& context);
void gdn_chunk(const GdnArgs& args, OpContext& context);
void attn_prepare(const AttnPrepareArgs& args, OpContext& context);
void attention(const AttentionArgs& args, OpContext& context);

}  // namespace sluice::ref
