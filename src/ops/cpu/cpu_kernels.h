#pragma once
// Every kernel of the CPU backend, one namespace an instruction set. The contracts are those of ops/*.h; cpu_ops.cc
// gathers them into tables.
//
// A set takes an op from a weaker one when it has nothing better: cpu_avx512bf16 and cpu_amx declare only what differs
// from cpu_avx512.

#include "ops/op_table.h"

namespace sluice {

#define SLUICE_CPU_LINEARS                                     \
  void linear(const LinearArgs&, OpContext&);                  \
  void linear_residual(const LinearResidualArgs&, OpContext&); \
  void gate_up(const GateUpArgs&, OpContext&);

#define SLUICE_CPU_OTHER_OPS                                \
  void embed(const EmbedArgs&, OpContext&);                 \
  void rms_norm(const RmsNormArgs&, OpContext&);            \
  void gated_rms_norm(const GatedRmsNormArgs&, OpContext&); \
  void conv1d(const Conv1dArgs&, OpContext&);               \
  void gdn_gates(const GdnGatesArgs&, OpContext&);          \
  void gdn_step(const GdnArgs&, OpContext&);                \
  void gdn_chunk(const GdnArgs&, OpContext&);               \
  void attn_prepare(const AttnPrepareArgs&, OpContext&);    \
  void attention(const AttentionArgs&, OpContext&);

namespace cpu_scalar {
SLUICE_CPU_LINEARS
SLUICE_CPU_OTHER_OPS
}  // namespace cpu_scalar

namespace cpu_avx2 {
SLUICE_CPU_LINEARS
SLUICE_CPU_OTHER_OPS
}  // namespace cpu_avx2

namespace cpu_avx512 {
SLUICE_CPU_LINEARS
SLUICE_CPU_OTHER_OPS
}  // namespace cpu_avx512

namespace cpu_avx512bf16 {
SLUICE_CPU_LINEARS
}  // namespace cpu_avx512bf16

namespace cpu_amx {
SLUICE_CPU_LINEARS
void attention(const AttentionArgs&, OpContext&);
}  // namespace cpu_amx

#undef SLUICE_CPU_LINEARS
#undef SLUICE_CPU_OTHER_OPS

/// Upper bounds of what one op takes from OpContext::scratch, for every instruction set.
size_t cpu_linear_scratch_bytes(const OpDims& dims);     // linear, linear_residual, gate_up
size_t cpu_gdn_scratch_bytes(const OpDims& dims);        // conv1d, gdn_gates, gdn_step, gdn_chunk
size_t cpu_attention_scratch_bytes(const OpDims& dims);  // attn_prepare, attention

/// What a blocked linear keeps for each worker; the AMX kernel's is the largest.
constexpr size_t kLinearWorkerBytes = size_t{640} << 10;

}  // namespace sluice
