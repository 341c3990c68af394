#include "ops/op_tap.h"

#include <array>
#include <vector>

namespace sluice {
namespace {

std::array<OpOutput, 1> outputs_of(const EmbedArgs& a) {
  return {{{a.out, {}}}};
}
std::array<OpOutput, 1> outputs_of(const RmsNormArgs& a) {
  return {{{a.out, {}}}};
}
std::array<OpOutput, 1> outputs_of(const GatedRmsNormArgs& a) {
  return {{{a.out, {}}}};
}
std::vector<OpOutput> outputs_of(const LinearArgs& a) {
  std::vector<OpOutput> outputs;
  for (const Projection& projection : a.projections) outputs.push_back({projection.out, {}});
  return outputs;
}
std::array<OpOutput, 1> outputs_of(const LinearResidualArgs& a) {
  return {{{a.residual, {}}}};
}
std::array<OpOutput, 1> outputs_of(const GateUpArgs& a) {
  return {{{a.out, {}}}};
}
std::array<OpOutput, 1> outputs_of(const Conv1dArgs& a) {
  return {{{a.out, {}}}};
}
std::array<OpOutput, 2> outputs_of(const GdnGatesArgs& a) {
  return {{{{}, a.g}, {{}, a.beta}}};
}
std::array<OpOutput, 1> outputs_of(const GdnArgs& a) {
  return {{{a.o, {}}}};
}
std::array<OpOutput, 1> outputs_of(const AttnPrepareArgs& a) {
  return {{{a.q, {}}}};
}
std::array<OpOutput, 1> outputs_of(const AttentionArgs& a) {
  return {{{a.out, {}}}};
}

template <auto kMember, typename Args>
void call_and_tap(const Args& args, OpContext& context, std::string_view op) {
  SLUICE_CHECK(context.tap != nullptr);
  (context.tap->inner().*kMember)(args, context);
  context.tap->after(op, outputs_of(args));
}

}  // namespace

OpTable tapped_ops(const OpTable& inner) {
  OpTable table = inner;
  table.padded_rows = nullptr;
  table.gdn_mixer = nullptr;
  table.attention_mixer = nullptr;
  table.mlp = nullptr;
  table.head = nullptr;
#define SLUICE_TAP(member, op)                              \
  table.member = [](const auto& args, OpContext& context) { \
    call_and_tap<&OpTable::member>(args, context, op);      \
  }
  SLUICE_TAP(embed, "embed");
  SLUICE_TAP(rms_norm, "rms_norm");
  SLUICE_TAP(gated_rms_norm, "gated_rms_norm");
  SLUICE_TAP(linear, "linear");
  SLUICE_TAP(linear_residual, "linear_residual");
  SLUICE_TAP(gate_up, "gate_up");
  SLUICE_TAP(conv1d, "conv1d");
  SLUICE_TAP(gdn_gates, "gdn_gates");
  SLUICE_TAP(gdn_step, "gdn");
  SLUICE_TAP(gdn_chunk, "gdn");
  SLUICE_TAP(attn_prepare, "attn_prepare");
  SLUICE_TAP(attention, "attention");
#undef SLUICE_TAP
  return table;
}

}  // namespace sluice
