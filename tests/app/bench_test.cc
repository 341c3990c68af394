// What `sluice bench` says about a step's launches; its times need a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "apps/bench/launch_table.h"
#include "apps/bench/part_table.h"
#include "apps/bench/step_flop.h"
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
      groups, [&](const LaunchGroup& g) { return g.work.role == role && g.block == block; });
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
    if (group.work.role != "core")
      bytes += group.work.bytes * static_cast<int64_t>(group.launches.size());
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
  EXPECT_EQ(group_of(groups, "down_proj", StepBlock::kMlp).work.bytes,
            packed_weight_bytes(weights.layers[0].mlp.down_proj));
  EXPECT_EQ(group_of(groups, "out_proj", StepBlock::kGdnMixer).launches, std::vector<int>{6});
  EXPECT_EQ(group_of(groups, "core", StepBlock::kAttentionMixer).work.bytes,
            32768 * 2 * c.key_value_dim() * 2);
  // Recurrent state in and out, 3 conv inputs a channel, 8 new ones.
  EXPECT_EQ(group_of(groups, "core", StepBlock::kGdnMixer).work.bytes,
            2 * c.linear_value_dim() * c.linear_key_head_dim * 4 + 11 * c.conv_dim() * 2);
  // The norm's operands, and those of the rows whose logits are wanted.
  EXPECT_EQ(group_of(groups, "operands_kernel", StepBlock::kHead).launches.size(), 1u);
  EXPECT_EQ(group_of(groups, "operands_kernel 2", StepBlock::kHead).launches.size(), 1u);
}

TEST(BenchLaunches, TheTableSumsUp) {
  std::vector<LaunchGroup> groups(2);
  const LaunchWork gate_up = {"gate up", LaunchPart::kProjections, 4'000'000};
  groups[0] = {StepBlock::kMlp, gate_up, "k<1>", 132, 256, true, {3, 7}, 2.0};
  const LaunchWork embed = {"embed_kernel"};
  groups[1] = {StepBlock::kEmbed, embed, "embed_kernel", 1, 256, false, {1}, 1.0};
  const std::string table = launch_table(groups, 10.0, 4000.0);
  EXPECT_NE(table.find("sum of groups 5.0 us, the step 10.0 us: 5.0 us are left (50.0 %)"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("2000"), std::string::npos) << table;  // GB/s
  EXPECT_NE(table.find("embed_kernel *"), std::string::npos) << table;
}

/// A prompt's step of the CUDA backend where it has kernels for prompts.
Step make_prompt_step() {
  Step step;
  step.add(StepBlock::kOpen, {"open_step_kernel"});
  step.add(StepBlock::kEmbed, {"embed_kernel"});
  step.add(StepBlock::kGdnMixer, {"norm_kernel", "gemm_prefill_kernel<256>", "factors_kernel<3>",
                                  "scan_kernel", "gated_norm_kernel", "gemm_prefill_kernel<256>"});
  step.add(StepBlock::kMlp, {kOperands, "gemm_prefill_kernel<256>", "gemm_prefill_kernel<256>"});
  step.add(StepBlock::kAttentionMixer,
           {kOperands, "gemm_prefill_kernel<256>", "prepare_kernel", "attention_kernel",
            "merge_kernel", "gemm_prefill_kernel<256>"});
  step.add(StepBlock::kMlp, {kOperands, "gemm_prefill_kernel<256>", "gemm_prefill_kernel<256>"});
  step.add(StepBlock::kHead, {kOperands, kOperands, "resident_kernel"});
  step.add(StepBlock::kDraw, {"scan_kernel", "finish_kernel"});
  step.add(StepBlock::kClose, {"close_step_kernel"});
  return step;
}

constexpr StepCase kPrompt = {8192 + 200, 200, 1, true};

std::vector<LaunchGroup> prompt_groups(const ModelWeights& weights) {
  const Step step = make_prompt_step();
  return group_launches(step.launches, step.blocks, weights, kPrompt);
}

TEST(BenchPrompts, FlopCountsEveryProductOfTheStep) {
  ModelWeights weights = two_layers();
  weights.config.layer_types = {LayerType::kLinearAttention, LayerType::kFullAttention};
  int64_t flop = 0;
  for (const LaunchGroup& group : prompt_groups(weights)) {
    flop += group.work.flop * static_cast<int64_t>(group.launches.size());
  }
  EXPECT_EQ(flop, prompt_flop(weights, 8192, 200));
}

TEST(BenchPrompts, FlopByHand) {
  const ModelConfig c = *family_config("27B");
  // Rows that see 9 and 10 positions; a multiply and an add for keys and for values.
  EXPECT_EQ(attention_flop(c, 8, 2), (9 + 10) * 2 * 2 * 24 * 256);
  EXPECT_EQ(attention_flop(c, 0, 4096), int64_t{4096} * 4097 / 2 * 4 * 24 * 256);
  // A row's S^T k, k u^T and S^T q of 48 heads.
  EXPECT_EQ(gdn_flop(c, 1), 3 * 2 * 48 * 128 * 128);
  EXPECT_EQ(product_flop(view(WeightFormat::kFp8Block128, 5120, 6144), 64),
            int64_t{2} * 64 * 5120 * 6144);
}

TEST(BenchPrompts, PartsFollowTheKernels) {
  const ModelWeights weights = two_layers();
  const ModelConfig& c = weights.config;
  const std::vector<LaunchGroup> groups = prompt_groups(weights);
  const struct {
    const char* role;
    StepBlock block;
    LaunchPart part;
  } places[] = {
      {"qkv z b a", StepBlock::kGdnMixer, LaunchPart::kProjections},
      {"factors", StepBlock::kGdnMixer, LaunchPart::kGdn},
      {"scan", StepBlock::kGdnMixer, LaunchPart::kGdn},
      {"gated norm", StepBlock::kGdnMixer, LaunchPart::kGdn},
      {"out_proj", StepBlock::kGdnMixer, LaunchPart::kProjections},
      {"norm", StepBlock::kMlp, LaunchPart::kRest},
      {"gate up", StepBlock::kMlp, LaunchPart::kProjections},
      {"down_proj", StepBlock::kMlp, LaunchPart::kProjections},
      {"q k v", StepBlock::kAttentionMixer, LaunchPart::kProjections},
      {"prepare", StepBlock::kAttentionMixer, LaunchPart::kAttention},
      {"products", StepBlock::kAttentionMixer, LaunchPart::kAttention},
      {"merge", StepBlock::kAttentionMixer, LaunchPart::kAttention},
      {"o_proj", StepBlock::kAttentionMixer, LaunchPart::kProjections},
      {"embed", StepBlock::kEmbed, LaunchPart::kRest},
      {"lm_head", StepBlock::kHead, LaunchPart::kRest},
      {"logits", StepBlock::kDraw, LaunchPart::kRest},
  };
  for (const auto& place : places) {
    EXPECT_EQ(group_of(groups, place.role, place.block).work.part, place.part) << place.role;
  }
  // The last row's logits alone.
  EXPECT_EQ(group_of(groups, "logits", StepBlock::kDraw).work.bytes, c.vocab_size * 2);
  EXPECT_EQ(group_of(groups, "lm_head", StepBlock::kHead).work.flop,
            2 * c.vocab_size * c.hidden_size);
  // Keys and values once, and 200 rows of results.
  EXPECT_EQ(group_of(groups, "products", StepBlock::kAttentionMixer).work.bytes,
            (8192 + 200) * 2 * c.key_value_dim() * 2 + 200 * c.attention_dim() * 2);
}

TEST(BenchPrompts, PeersGetTheMainProduct) {
  const ModelWeights weights = two_layers();
  const std::vector<LaunchGroup> groups = prompt_groups(weights);
  const auto product = [&](std::string_view role, StepBlock block) {
    return *group_of(groups, role, block).work.product;
  };
  // Without b and a, which are not in FP8.
  EXPECT_EQ(product("qkv z b a", StepBlock::kGdnMixer), (cuda::MatmulShape{200, 16384, 5120}));
  EXPECT_EQ(product("out_proj", StepBlock::kGdnMixer), (cuda::MatmulShape{200, 5120, 6144}));
  EXPECT_EQ(product("gate up", StepBlock::kMlp), (cuda::MatmulShape{200, 34816, 5120}));
  EXPECT_EQ(product("down_proj", StepBlock::kMlp), (cuda::MatmulShape{200, 5120, 17408}));
  EXPECT_FALSE(group_of(groups, "scan", StepBlock::kGdnMixer).work.product.has_value());
}

TEST(BenchPrompts, SegmentsShareTheWorkOfARun) {
  const ModelWeights weights = two_layers();
  const std::string kernels[] = {
      "norm_kernel",    "gemm",        "factors_kernel",    "scan_kernel", "gated_norm_kernel",
      "factors_kernel", "scan_kernel", "gated_norm_kernel", "gemm"};
  const std::vector<LaunchWork> works = works_of(StepBlock::kGdnMixer, kernels, weights, kPrompt);
  EXPECT_EQ(works[3].role, "scan");
  EXPECT_EQ(works[3].flop + works[6].flop, gdn_flop(weights.config, 200));
  EXPECT_EQ(works[0].role, "norm");
  EXPECT_EQ(works[1].role, "qkv z b a");
  EXPECT_EQ(works[4].role, "gated norm");
  EXPECT_EQ(works[8].role, "out_proj");
}

TEST(BenchPrompts, TheFloorIsTheSlowerOfBytesAndFlop) {
  const auto floor = [](int64_t bytes, int64_t flop, const char* kernel, const Ceilings& ceilings) {
    PartGroup part;
    part.group.work.bytes = bytes;
    part.group.work.flop = flop;
    part.group.kernel = kernel;
    return floor_us(part, ceilings);
  };
  const Ceilings ceilings = {4000.0, 800.0, 1600.0};
  EXPECT_DOUBLE_EQ(floor(8'000'000, 800'000'000, "gemm", ceilings), 2.0);
  EXPECT_DOUBLE_EQ(floor(4'000, 2'400'000'000, "gemm", ceilings), 3.0);
  EXPECT_DOUBLE_EQ(floor(4'000, 2'400'000'000, "gemm_fp8_kernel<1>", ceilings), 1.5);
  // Without a peer only bytes are known.
  EXPECT_DOUBLE_EQ(floor(8'000'000, 800'000'000, "gemm", {4000.0}), 2.0);
}

TEST(BenchPrompts, ProductsAreSetAgainstTheSameKindOfOperands) {
  PartGroup part;
  part.peer = {3.0, 2.0, 1.0};
  part.group.kernel = "gemm_prefill_kernel<256, 1>";
  EXPECT_EQ(part.peer_us(), 3.0);
  part.group.kernel = "gemm_fp8_kernel<1>";
  EXPECT_EQ(part.peer_us(), 2.0);
}

TEST(BenchPrompts, ThePartTableSumsUp) {
  std::vector<PartGroup> parts(2);
  const LaunchWork gate_up = {"gate up", LaunchPart::kProjections, 0, 1'600'000'000};
  parts[0].group = {StepBlock::kMlp, gate_up, "gemm", 132, 384, true, {3, 7}, 4.0};
  parts[0].peer.bf16_us = 3.0;
  const LaunchWork scan = {"scan", LaunchPart::kGdn, 4'000'000};
  parts[1].group = {StepBlock::kGdnMixer, scan, "scan_kernel", 96, 256, false, {1}, 1.0};
  const std::string table = part_table(parts, {4000.0, 800.0, 0.0}, 10.0);
  EXPECT_NE(table.find("sum of groups 9.0 us, the step 10.0 us: 1.0 us are left (10.0 %)"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("scan_kernel *"), std::string::npos) << table;
  EXPECT_NE(table.find(" 400.0 "), std::string::npos) << table;  // TFLOP/s
  EXPECT_NE(table.find(" 0.75"), std::string::npos) << table;    // of the peer
}

}  // namespace
}  // namespace sluice
