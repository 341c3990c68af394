#include "model/family.h"

#include <gtest/gtest.h>

#include <set>

#include "base/weight_view.h"
#include "model/budget.h"

namespace sluice {
namespace {

// model-spec 1.5. The vision tower is not read, so its numbers only complete the published totals.
struct SizeTotals {
  const char* size;
  int64_t text, mtp, vision, total;
  int64_t text_tensors, vision_tensors, all_tensors;
};
constexpr SizeTotals kTotals[] = {
    {"27B", 26895998464, 424699392, 460730096, 27781427952, 851, 333, 1199},
    {"9B", 8953803264, 243290624, 456010480, 9653104368, 427, 333, 775},
    {"4B", 4205751296, 120599552, 333514240, 4659865088, 426, 297, 738},
    {"2B", 1881825088, 60828160, 331416576, 2274069824, 320, 297, 632},
    {"0.8B", 752393024, 20452864, 100592896, 873438784, 320, 153, 488},
};

std::vector<TensorSpec> table(std::string_view size, WeightFormat linears) {
  return checkpoint_tensors(*family_config(size), family_format(size, linears));
}

TEST(Family, ParameterAndTensorCounts) {
  for (const SizeTotals& row : kTotals) {
    const ModelTotals totals = model_totals(table(row.size, WeightFormat::kBf16));
    EXPECT_EQ(totals.text.num_parameters, row.text) << row.size;
    EXPECT_EQ(totals.mtp.num_parameters, row.mtp) << row.size;
    EXPECT_EQ(totals.text.num_parameters + totals.mtp.num_parameters + row.vision, row.total)
        << row.size;
    EXPECT_EQ(totals.text.num_tensors, row.text_tensors) << row.size;
    EXPECT_EQ(totals.mtp.num_tensors, 15) << row.size;
    EXPECT_EQ(row.text_tensors + 15 + row.vision_tensors, row.all_tensors) << row.size;
  }
}

int64_t all_bytes(std::string_view size, WeightFormat linears, int64_t vision_parameters) {
  const ModelTotals totals = model_totals(table(size, linears));
  return totals.text.num_bytes + totals.mtp.num_bytes + 2 * vision_parameters;
}

TEST(Family, PublishedByteTotals) {
  EXPECT_EQ(all_bytes("27B", WeightFormat::kBf16, 460730096), 55562855904);
  EXPECT_EQ(all_bytes("4B", WeightFormat::kBf16, 333514240), 9319737856);
  EXPECT_EQ(all_bytes("27B", WeightFormat::kFp8Block128, 460730096), 30866663264);
}

TEST(Family, Fp8TensorsOf27B) {
  int64_t num_fp8 = 0, fp8_bytes = 0, mtp_fp8_bytes = 0, num_scales = 0;
  const std::vector<TensorSpec> tensors = table("27B", WeightFormat::kFp8Block128);
  for (const TensorSpec& tensor : tensors) {
    if (tensor.role == TensorRole::kScale) num_scales += tensor.num_elements();
    if (tensor.dtype != Dtype::kF8E4M3) continue;
    ++num_fp8;
    fp8_bytes += tensor.num_bytes();
    if (tensor.is_mtp) mtp_fp8_bytes += tensor.num_bytes();
  }
  EXPECT_EQ(num_fp8, 407);
  EXPECT_EQ(fp8_bytes, 24699207680);
  EXPECT_EQ(mtp_fp8_bytes, 372244480);
  EXPECT_EQ(num_scales, 1507520);
  EXPECT_EQ(tensors.size(), 1273u);
}

TEST(Family, NamesAreUnique) {
  for (const std::string_view size : family_sizes()) {
    std::set<std::string> names;
    for (const TensorSpec& tensor : table(size, WeightFormat::kFp8Block128)) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    }
  }
}

TEST(Family, StepBytesOf27BFp8) {
  const std::vector<TensorSpec> tensors = table("27B", WeightFormat::kFp8Block128);
  const StepBytes step = step_bytes(tensors, StepPart::kTarget);
  EXPECT_EQ(step.fp8_linears, 24326963200);
  EXPECT_EQ(step.scales, 24326963200 / (128 * 128) * 2);
  EXPECT_EQ(step.lm_head, 2542796800);
  EXPECT_EQ(step.embedding, 10240);
  EXPECT_NEAR(static_cast<double>(step.bf16_linears + step.other), 52e6, 2e6);
  EXPECT_NEAR(static_cast<double>(step.total()), 26.9e9, 0.05e9);
  const StepBytes draft = step_bytes(tensors, StepPart::kDraft);
  EXPECT_EQ(draft.fp8_linears, 372244480);
  EXPECT_EQ(draft.bf16_linears, 2 * 5120 * 10240);
  EXPECT_EQ(draft.lm_head, step.lm_head);
}

TEST(Family, TiedHeadIsReadAsTheEmbedding) {
  const StepBytes step = step_bytes(table("0.8B", WeightFormat::kBf16), StepPart::kTarget);
  EXPECT_EQ(step.lm_head, int64_t{248320} * 1024 * 2);
  EXPECT_EQ(step.embedding, 2048);
  EXPECT_EQ(step.fp8_linears + step.scales, 0);
}

struct SequenceRow {
  const char* size;
  int64_t state_mib, conv_bytes, kv_kib, mtp_kv_kib;
};

TEST(Family, SequenceBytes) {  // model-spec 3.9
  constexpr SequenceRow kRows[] = {{"0.8B", 18, 648 << 10, 12, 2},
                                   {"2B", 18, 648 << 10, 12, 2},
                                   {"4B", 48, 1152 << 10, 32, 4},
                                   {"9B", 48, 1152 << 10, 32, 4},
                                   {"27B", 144, 2880 << 10, 64, 4}};
  for (const SequenceRow& row : kRows) {
    const SequenceBytes bytes = sequence_bytes(*family_config(row.size));
    EXPECT_EQ(bytes.recurrent_state, row.state_mib << 20) << row.size;
    EXPECT_EQ(bytes.conv_state, row.conv_bytes) << row.size;
    EXPECT_EQ(bytes.kv_per_token, row.kv_kib << 10) << row.size;
    EXPECT_EQ(bytes.mtp_kv_per_token, row.mtp_kv_kib << 10) << row.size;
  }
}

TEST(Family, AShallowModelKeepsTheShapeOfItsLayers) {
  ModelConfig config = *family_config("27B");
  ASSERT_TRUE(keep_first_layers(&config, 8).ok());
  EXPECT_EQ(config.num_full_attention_layers(), 2);
  EXPECT_EQ(config.hidden_size, 5120);
  ModelConfig read = *parse_model_config(
      config_json(config, family_format("27B", WeightFormat::kBf16)), "config.json");
  EXPECT_EQ(read.layer_types, config.layer_types);
  EXPECT_EQ(keep_first_layers(&config, 9).message(), "9 layers asked for; expected 1 to 8");
  EXPECT_FALSE(keep_first_layers(&config, 0).ok());
}

TEST(Family, UnknownSizeListsTheSizes) {
  EXPECT_EQ(family_config("7B").status().message(),
            "no size \"7B\"; expected one of tiny, 0.8B, 2B, 4B, 9B, 27B");
}

}  // namespace
}  // namespace sluice
