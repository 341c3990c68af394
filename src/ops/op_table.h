#pragma once
// A backend is a struct of function pointers, picked once at load; forward is written once over it.

#include <string_view>

#include "base/status.h"
#include "ops/attention.h"
#include "ops/conv1d.h"
#include "ops/embed.h"
#include "ops/gdn.h"
#include "ops/linear.h"
#include "ops/memory.h"
#include "ops/norm.h"
#include "ops/op_context.h"

namespace sluice {

/// What a backend must know to accept a model and to size its scratch.
struct OpDims {
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t vocab_size = 0;
  GdnShape gdn;
  AttentionShape attention;
  /// Largest number of rows in one step, and of positions in one session.
  int64_t num_rows_max = 0;
  int64_t context_max = 0;
  int num_threads = 1;
};

struct OpTable {
  std::string_view name;
  /// Holds whatever the ops' arguments point to.
  const MemoryTable* memory;

  /// kUnsupported, naming the shape, when this backend has no kernel for it.
  Status (*check_shape)(const OpDims& dims);
  /// Upper bound of what any op below takes from OpContext::scratch.
  size_t (*scratch_bytes)(const OpDims& dims);

  /// Before a step's ops: what the host knows of its rows, for backends that need it elsewhere.
  void (*begin_step)(const StepRows&, OpContext&);
  /// Behind a step's ops: shared memory holds their results when it returns.
  void (*end_step)(OpContext&);

  void (*embed)(const EmbedArgs&, OpContext&);
  void (*rms_norm)(const RmsNormArgs&, OpContext&);
  void (*gated_rms_norm)(const GatedRmsNormArgs&, OpContext&);
  void (*linear)(const LinearArgs&, OpContext&);
  void (*linear_residual)(const LinearResidualArgs&, OpContext&);
  void (*gate_up)(const GateUpArgs&, OpContext&);
  void (*conv1d)(const Conv1dArgs&, OpContext&);
  void (*gdn_gates)(const GdnGatesArgs&, OpContext&);
  void (*gdn_step)(const GdnArgs&, OpContext&);
  void (*gdn_chunk)(const GdnArgs&, OpContext&);
  void (*attn_prepare)(const AttnPrepareArgs&, OpContext&);
  void (*attention)(const AttentionArgs&, OpContext&);
};

/// begin_step and end_step of backends that run on the host: rows are read from the ops' arguments.
void host_begin_step(const StepRows&, OpContext&);
void host_end_step(OpContext&);

/// Scalar, slow, obvious; the arbiter of the others.
const OpTable& ref_ops();

/// Instruction sets the CPU backend has kernels for, weakest first.
enum class CpuIsa { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmx };
std::string_view cpu_isa_name(CpuIsa isa);
/// The strongest this machine and kernel allow.
CpuIsa best_cpu_isa();
/// The CPU backend for one instruction set; kUnsupported when this machine lacks it.
Result<const OpTable*> cpu_ops(CpuIsa isa);

}  // namespace sluice
