#pragma once
// A backend is a struct of function pointers, picked once at load; forward is written once over it.

#include <memory>
#include <string_view>

#include "base/status.h"
#include "ops/attention.h"
#include "ops/blocks.h"
#include "ops/conv1d.h"
#include "ops/embed.h"
#include "ops/gdn.h"
#include "ops/linear.h"
#include "ops/memory.h"
#include "ops/norm.h"
#include "ops/op_context.h"

namespace sluice {

/// How the projections of a prompt's rows multiply: activations as they are, or rounded to e4m3 in groups of 128 columns where the weight is block FP8.
enum class PrefillMath { kExact, kFp8 };

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
  PrefillMath prefill_math = PrefillMath::kExact;
};

/// logits [num_logit_rows, vocab_size] bf16. Ids from num_defined on are never drawn.
struct DrawArgs {
  MatView<const bf16> logits;
  int32_t num_defined = 0;
};

struct OpTable {
  std::string_view name;
  /// Holds whatever the ops' arguments point to.
  const MemoryTable* memory;

  /// kUnsupported, naming the shape, when this backend has no kernel for it.
  Status (*check_shape)(const OpDims& dims);
  /// Upper bound of what any op below takes from OpContext::scratch.
  size_t (*scratch_bytes)(const OpDims& dims);

  /// What this backend makes of a projection's weight. weight_bytes bounds what place_weight writes at `to`, in the backend's
  /// memory; the view it returns is for this backend's ops alone. begin_placing takes what placing needs (kResourceExhausted
  /// names the bytes), end_placing gives it back.
  /// Null: ops read weights as the checkpoint stores them.
  size_t (*weight_bytes)(const WeightView& from);
  Status (*begin_placing)();
  WeightView (*place_weight)(const WeightView& from, std::byte* to);
  void (*end_placing)();

  /// For OpContext::state of every step of one caller, which waits for its steps before it lets go. Null: none is needed.
  Result<std::unique_ptr<BackendState>> (*open_state)(const OpDims& dims);
  /// Rows that a step's views should have for so many rows (StepRows::num_rows). Null: as many. Never fewer for more rows.
  int64_t (*padded_rows)(int64_t num_rows);
  /// Before a step's ops: what the host knows of its rows, for backends that need it elsewhere. True: the whole step is
  /// under way as it was recorded under rows.key, and its ops must not be called. Of a rehearsal (StepRows): there is nothing to record.
  bool (*begin_step)(const StepRows& rows, OpContext&);
  /// Behind a step's ops, called, replayed or recorded.
  void (*end_step)(OpContext&);
  /// Shared memory holds the results of that step when it returns.
  void (*await_step)(OpContext&);

  // Whole blocks. Null, or false when this call is not for it and nothing was done: it is made of the ops below.
  bool (*gdn_mixer)(const GdnMixerArgs&, OpContext&);
  bool (*attention_mixer)(const AttentionMixerArgs&, OpContext&);
  bool (*mlp)(const MlpArgs&, OpContext&);
  bool (*head)(const HeadArgs&, OpContext&);

  /// Draws for every logit row by StepRows::draws; OpContext::drawn has the ids behind await_step. Null: the host draws.
  void (*draw)(const DrawArgs&, OpContext&);

  void (*embed)(const EmbedArgs&, OpContext&);
  void (*gather)(const GatherArgs&, OpContext&);
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

/// Of backends that run on the host: rows are read from the ops' arguments, and an op is done when it returns.
bool host_begin_step(const StepRows&, OpContext&);
void host_end_step(OpContext&);
void host_gather(const GatherArgs&, OpContext&);

/// open_state, or null where a backend keeps none.
Result<std::unique_ptr<BackendState>> open_backend_state(const OpTable& ops, const OpDims& dims);
/// padded_rows, or as many.
int64_t padded_rows(const OpTable& ops, int64_t num_rows);

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
