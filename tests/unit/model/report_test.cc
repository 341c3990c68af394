#include "model/report.h"

#include <gtest/gtest.h>

#include "base/weight_view.h"
#include "checkpoint_fixture.h"
#include "model/checkpoint.h"
#include "model/family.h"

namespace sluice {
namespace {

std::vector<TensorSpec> table(std::string_view size, WeightFormat linears) {
  return checkpoint_tensors(*family_config(size), family_format(size, linears));
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find(line + "\n"), std::string::npos) << "no line \"" << line << "\" in\n" << text;
}

TEST(Report, Config) {
  const std::string text = describe_config(*family_config("27B"), {}, std::vector<int32_t>{3, 4});
  expect_line(text, "layers      64 (48 linear_attention, 16 full_attention)");
  expect_line(
      text, "attention   24 query heads over 4 key/value heads of 256, rotary 64 with theta 1e+07");
  expect_line(text, "delta rule  48 value heads over 16 key heads of 128, convolution over 4");
  expect_line(text, "stop ids    3, 4");
  expect_line(text, "sampling    temperature 1, top_k 20, top_p 0.95");
}

TEST(Report, BudgetOf27BFp8) {
  const ModelConfig config = *family_config("27B");
  const std::string text =
      describe_budget(config, table("27B", WeightFormat::kFp8Block128), 4700.0);
  expect_line(text, "  FP8 linears         24,326,963,200       372,244,480");
  expect_line(text, "  lm_head              2,542,796,800     2,542,796,800");
  expect_line(text, "  recurrent state 144.00 MiB, conv state 2.81 MiB, fixed");
  expect_line(text, "  KV cache 64.00 KiB a token, draft head 4.00 KiB a token");
  expect_line(text, "  weights of a step 5.729 ms (175 steps/s)");
  EXPECT_EQ(
      describe_budget(config, table("27B", WeightFormat::kFp8Block128), std::nullopt).find("floor"),
      std::string::npos);
}

TEST(Report, TensorsOfALoadedCheckpoint) {
  const test::TempDir dir;
  SynthSpec spec = test::small_spec(WeightFormat::kFp8Block128);
  spec.format.has_mtp = false;
  ASSERT_TRUE(write_synthetic_checkpoint(spec, dir.path(), nullptr).ok());
  const Result<LoadedModel> model = load_model(dir.path(), {});
  ASSERT_TRUE(model.ok());
  const std::string text = describe_tensors(model->weights.config, model->tensors);
  EXPECT_NE(text.find("  text              41 of    41 "), std::string::npos) << text;
  EXPECT_NE(text.find("  mtp                0 of    22 "), std::string::npos) << text;
  EXPECT_NE(text.find("  F8_E4M3 "), std::string::npos) << text;
}

TEST(Report, Numbers) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(decimal_bytes(26900000000), "26.90 GB");
  EXPECT_EQ(decimal_bytes(999), "999 B");
  EXPECT_EQ(binary_bytes(1536), "1.50 KiB");
}

}  // namespace
}  // namespace sluice
