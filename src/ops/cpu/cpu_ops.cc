// The CPU backend's tables: which kernel each instruction set uses.
#include <algorithm>
#include <array>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/isa.h"

namespace sluice {
namespace {

Status check_multiple(std::string_view what, int64_t value, int64_t of) {
  if (value > 0 && value % of == 0) return {};
  return unsupported("{} is {}; the CPU backend's linears read rows in steps of {}", what, value,
                     of);
}

Status check_head_dim(std::string_view what, int64_t dim, int64_t step) {
  constexpr int64_t kHeadDimMax = 256;  // what the kernels keep of a head on their stacks
  if (dim > 0 && dim % step == 0 && dim <= kHeadDimMax) return {};
  return unsupported("{} is {}; the CPU backend has kernels for multiples of {} up to {}", what,
                     dim, step, kHeadDimMax);
}

Status check_heads(const OpDims& dims) {
  constexpr int64_t kLanes = 16;
  constexpr int64_t kFourTiles = 64;  // of sums, in attention's second pass (AMX)
  SLUICE_RETURN_IF_ERROR(ref_ops().check_shape(dims));
  SLUICE_RETURN_IF_ERROR(check_head_dim("head_dim", dims.attention.head_dim, kFourTiles));
  SLUICE_RETURN_IF_ERROR(check_head_dim("linear_key_head_dim", dims.gdn.head_k_dim, kLanes));
  return check_head_dim("linear_value_head_dim", dims.gdn.head_v_dim, kLanes);
}

Status check_shape(const OpDims& dims) {
  constexpr int64_t kStep = 32;
  SLUICE_RETURN_IF_ERROR(check_multiple("hidden_size", dims.hidden, kStep));
  SLUICE_RETURN_IF_ERROR(check_multiple("intermediate_size", dims.intermediate, kStep));
  SLUICE_RETURN_IF_ERROR(check_multiple("the GDN value width", dims.gdn.value_width(), kStep));
  SLUICE_RETURN_IF_ERROR(check_multiple("the attention width",
                                        dims.attention.num_heads * dims.attention.head_dim, kStep));
  return check_heads(dims);
}

size_t scratch_bytes(const OpDims& dims) {
  return std::max({cpu_linear_scratch_bytes(dims), cpu_gdn_scratch_bytes(dims),
                   cpu_attention_scratch_bytes(dims)});
}

OpTable make_table(CpuIsa isa) {
  OpTable t = {};
  t.name = cpu_isa_name(isa);
  t.check_shape = check_shape;
  t.memory = &host_memory();
  t.scratch_bytes = scratch_bytes;
  t.begin_step = host_begin_step;
  t.end_step = host_end_step;
  t.await_step = host_end_step;
  t.gather = host_gather;
  return t;
}

#define SLUICE_SET_LINEARS(table, isa)          \
  table.linear = isa::linear;                   \
  table.linear_residual = isa::linear_residual; \
  table.gate_up = isa::gate_up;

#define SLUICE_SET_OTHERS(table, isa)         \
  table.embed = isa::embed;                   \
  table.rms_norm = isa::rms_norm;             \
  table.gated_rms_norm = isa::gated_rms_norm; \
  table.conv1d = isa::conv1d;                 \
  table.gdn_gates = isa::gdn_gates;           \
  table.gdn_step = isa::gdn_step;             \
  table.gdn_chunk = isa::gdn_chunk;           \
  table.attn_prepare = isa::attn_prepare;     \
  table.attention = isa::attention;

OpTable table_of(CpuIsa isa) {
  OpTable t = make_table(isa);
  SLUICE_SET_LINEARS(t, cpu_scalar)
  SLUICE_SET_OTHERS(t, cpu_scalar)
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx2) {
    SLUICE_SET_LINEARS(t, cpu_avx2)
    SLUICE_SET_OTHERS(t, cpu_avx2)
  }
  if (isa >= CpuIsa::kAvx512) {
    SLUICE_SET_OTHERS(t, cpu_avx512)
  }
  if (isa == CpuIsa::kAvx512) {
    SLUICE_SET_LINEARS(t, cpu_avx512)
  }
  if (isa == CpuIsa::kAvx512Bf16) {
    SLUICE_SET_LINEARS(t, cpu_avx512bf16)
  }
  if (isa == CpuIsa::kAmx) {
    SLUICE_SET_LINEARS(t, cpu_amx)
    t.attention = cpu_amx::attention;
  }
#endif
  return t;
}

}  // namespace

Result<const OpTable*> cpu_ops(CpuIsa isa) {
  static const std::array<OpTable, 5> kTables = {
      table_of(CpuIsa::kScalar), table_of(CpuIsa::kAvx2), table_of(CpuIsa::kAvx512),
      table_of(CpuIsa::kAvx512Bf16), table_of(CpuIsa::kAmx)};
  if (!cpu_isa_available(isa)) {
    return unsupported("this machine cannot run {} kernels; its strongest set is {}",
                       cpu_isa_name(isa), cpu_isa_name(best_cpu_isa()));
  }
  return &kTables[static_cast<size_t>(isa)];
}

}  // namespace sluice
