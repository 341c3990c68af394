// What `sluice bench step` says about a step's launches; its times need a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "apps/bench/launch_table.h"
#include "apps/bench/step_traffic.h"
#include "model/budget.h"
#include "model/family.h"

namespace sluice {
namespace {

WeightView view(WeightFormat format, int64_t num_out, int64_t num_in) {
  return {format, nullptr, nullptr, num_out, num_in};
}

/// Shapes without memory: a GDN layer and an attention layer of the 27B.
ModelWeights two_layers() {
  ModelWeights weights;
  weights.config = *family_config("27B");
  const ModelConfig& c = weights.config;
  const auto fp8 = [](int64_t num_out, int64_t num_in) {
    return view(WeightFormat::kFp8Block128, num_out, num_in);
  };
  GdnLayerWeights gdn;
  gdn.in_proj_qkv = fp8(c.conv_dim(), c.hidden_size);
  gdn.in_proj_z = fp8(c.linear_value_dim(), c.hidden_size);
  gdn.in_proj_b = view(WeightFormat::kBf16, c.linear_num_value_heads, c.hidden_size);
  gdn.in_proj_a = gdn.in_proj_b;
  gdn.out_proj = fp8(c.hidden_size, c.linear_value_dim());
  AttentionLayerWeights attention;
  attention.q_proj = fp8(2 * c.attention_dim(), c.hidden_size);
  attention.k_proj = fp8(c.key_value_dim(), c.hidden_size);
  attention.v_proj = attention.k_proj;
  attention.o_proj = fp8(c.hidden_size, c.attention_dim());
  weights.layers.resize(2);
  weights.layers[0].mixer = gdn;
  weights.layers[1].mixer = attention;
  for (LayerWeights& layer : weights.layers) {
    layer.mlp.gate_proj = fp8(c.intermediate_size, c.hidden_size);
    layer.mlp.up_proj = layer.mlp.gate_proj;
    layer.mlp.down_proj = fp8(c.hidden_size, c.intermediate_size);
  }
  weights.lm_head = view(WeightFormat::kBf16, c.vocab_size, c.hidden_size);
  return weights;
}

constexpr const char* kOperands =
    "_ZN6sluice4cuda12_GLOBAL__N_115operands_kernelENS0_12OperandsArgsE";

struct Step {
  std::vector<cuda::StepLaunch> launches;
  std::vector<BlockStart> blocks;
  void add(StepBlock block, std::initializer_list<const char*> kernels) {
    blocks.push_back({block, static_cast<int>(launches.size())});
    for (const char* kernel : kernels) launches.push_back({kernel, 132, 256, 0, true});
  }
};

/// The order of the CUDA backend's blocks.
Step make_step() {
  Step step;
  step.add(StepBlock::kOpen, {"open_step_kernel"});
  step.add(StepBlock::kEmbed, {"embed_kernel"});
  step.add(StepBlock::kGdnMixer,
           {kOperands, "resident_kernel", "gdn_core_kernel", kOperands, "streamed_kernel"});
  step.add(StepBlock::kMlp, {kOperands, "resident_kernel", "streamed_kernel"});
  step.add(StepBlock::kAttentionMixer, {kOperands, "resident_kernel", "spans_kernel",
                                        "merge_kernel", kOperands, "streamed_kernel"});
  step.add(StepBlock::kMlp, {kOperands, "resident_kernel", "streamed_kernel"});
  step.add(StepBlock::kHead, {kOperands, "gather_kernel", kOperands, "resident_kernel"});
  step.add(StepBlock::kClose, {"close_step_kernel"});
  return step;
}

const LaunchGroup& group_of(const std::vector<LaunchGroup>& groups, std::string_view role,
                            StepBlock block) {
  const auto found = std::ranges::find_if(
      groups, [&](const LaunchGroup& g) { return g.role == role && g.block == block; });
  if (found == groups.end()) throw std::out_of_range(std::string(role));
  return *found;
}

TEST(BenchLaunches, NamesAreShort) {
  EXPECT_EQ(short_kernel_name(kOperands), "operands_kernel");
  EXPECT_EQ(short_kernel_name("no kernel"), "no kernel");
  EXPECT_EQ(short_kernel_name("void sluice::cuda::attn::merge<attn::Shape<64>, 3>(int)"),
            "merge<attn::Shape<64>, 3>");
  EXPECT_EQ(short_kernel_name("void sluice::cuda::(anonymous namespace)::k<(sluice::E)1, 8>(int)"),
            "k<(sluice::E)1, 8>");
}

TEST(BenchLaunches, EveryLaunchHasAGroupAndEveryWeightIsCountedOnce) {
  const ModelWeights weights = two_layers();
  const Step step = make_step();
  const std::vector<LaunchGroup> groups =
      group_launches(step.launches, step.blocks, weights, {1024, 1, 1});
  std::vector<int> launches;
  int64_t bytes = 0;
  for (const LaunchGroup& group : groups) {
    launches.insert(launches.end(), group.launches.begin(), group.launches.end());
    if (group.role != "core") bytes += group.bytes * static_cast<int64_t>(group.launches.size());
  }
  std::ranges::sort(launches);
  std::vector<int> all(step.launches.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(launches, all);
  EXPECT_EQ(bytes, all_weight_bytes(weights));
}

TEST(BenchLaunches, RolesFollowTheirPlaceInTheBlock) {
  const ModelWeights weights = two_layers();
  const ModelConfig& c = weights.config;
  const Step step = make_step();
  const std::vector<LaunchGroup> groups =
      group_launches(step.launches, step.blocks, weights, {32768, 8, 1});
  EXPECT_EQ(group_of(groups, "gate up", StepBlock::kMlp).launches.size(), 2u);
  EXPECT_EQ(group_of(groups, "down_proj", StepBlock::kMlp).bytes,
            packed_weight_bytes(weights.layers[0].mlp.down_proj));
  EXPECT_EQ(group_of(groups, "out_proj", StepBlock::kGdnMixer).launches, std::vector<int>{6});
  EXPECT_EQ(group_of(groups, "core", StepBlock::kAttentionMixer).bytes,
            32768 * 2 * c.key_value_dim() * 2);
  // Recurrent state in and out, 3 conv inputs a channel, 8 new ones.
  EXPECT_EQ(group_of(groups, "core", StepBlock::kGdnMixer).bytes,
            2 * c.linear_value_dim() * c.linear_key_head_dim * 4 + 11 * c.conv_dim() * 2);
  // The norm's operands, and those of the rows whose logits are wanted.
  EXPECT_EQ(group_of(groups, "operands_kernel", StepBlock::kHead).launches.size(), 1u);
  EXPECT_EQ(group_of(groups, "operands_kernel 2", StepBlock::kHead).launches.size(), 1u);
}

TEST(BenchLaunches, TheTableSumsUp) {
  std::vector<LaunchGroup> groups(2);
  groups[0] = {StepBlock::kMlp, "gate up", "k<1>", 132, 256, true, {3, 7}, 4'000'000, 2.0};
  groups[1] = {StepBlock::kEmbed, "embed_kernel", "embed_kernel", 1, 256, false, {1}, 0, 1.0};
  const std::string table = launch_table(groups, 10.0, 4000.0);
  EXPECT_NE(table.find("sum of groups 5.0 us, the step 10.0 us: 5.0 us are left (50.0 %)"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("2000"), std::string::npos) << table;  // GB/s
  EXPECT_NE(table.find("embed_kernel *"), std::string::npos) << table;
}

}  // namespace
}  // namespace sluice
