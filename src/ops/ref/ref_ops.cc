#include "ops/ref/ref_ops.h"

namespace sluice {
namespace {

Status check_shape(const OpDims& dims) {
  const GdnShape& gdn = dims.gdn;
  if (gdn.num_k_heads < 1 || gdn.num_v_heads % gdn.num_k_heads != 0) {
    return unsupported("{} GDN value heads do not divide over {} key heads", gdn.num_v_heads,
                       gdn.num_k_heads);
  }
  const AttentionShape& attn = dims.attention;
  if (attn.num_kv_heads < 1 || attn.num_heads % attn.num_kv_heads != 0) {
    return unsupported("{} attention heads do not divide over {} key-value heads", attn.num_heads,
                       attn.num_kv_heads);
  }
  if (attn.rotary_dim % 2 != 0 || attn.rotary_dim > attn.head_dim) {
    return unsupported("rotary_dim {} must be even and at most head_dim {}", attn.rotary_dim,
                       attn.head_dim);
  }
  return {};
}

size_t scratch_bytes(const OpDims&) {
  return 0;
}

}  // namespace

const OpTable& ref_ops() {
  static const OpTable kTable = {
      .name = "ref",
      .memory = &host_memory(),
      .check_shape = check_shape,
      .scratch_bytes = scratch_bytes,
      .weight_bytes = nullptr,
      .begin_placing = nullptr,
      .place_weight = nullptr,
      .end_placing = nullptr,
      .open_state = nullptr,
      .padded_rows = nullptr,
      .begin_step = host_begin_step,
      .end_step = host_end_step,
      .await_step = host_end_step,
      .gdn_mixer = nullptr,
      .attention_mixer = nullptr,
      .mlp = nullptr,
      .head = nullptr,
      .draw = nullptr,
      .embed = ref::embed,
      .gather = host_gather,
      .rms_norm = ref::rms_norm,
      .gated_rms_norm = ref::gated_rms_norm,
      .linear = ref::linear,
      .linear_residual = ref::linear_residual,
      .gate_up = ref::gate_up,
      .conv1d = ref::conv1d,
      .gdn_gates = ref::gdn_gates,
      .gdn_step = ref::gdn_step,
      .gdn_chunk = ref::gdn_chunk,
      .attn_prepare = ref::attn_prepare,
      .attention = ref::attention,
  };
  return kTable;
}

}  // namespace sluice
