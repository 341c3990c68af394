// Goldens that are damaged or belong to another model get one clear line each.

#include "verify/golden.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "model/checkpoint.h"
#include "verify/difference.h"
#include "verify/op_values.h"
#include "verify/report.h"

namespace sluice {
namespace {

const Path kGolden = Path(SLUICE_SOURCE_DIR) / "tests/golden/model/tiny_agent";
const Path kModel = Path(SLUICE_SOURCE_DIR) / "models/tiny-agent";

const ModelConfig& config() {
  static const ModelConfig config = load_model(kModel, LoadOptions())->weights.config;
  return config;
}

/// A copy of the manifest and of one case, to be damaged.
class DamagedGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = Path(::testing::TempDir()) /
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(dir_);
    std::filesystem::copy_file(kGolden / kCase, dir_ / kCase,
                               std::filesystem::copy_options::overwrite_existing);
    write_manifest(R"("file": "0005_code.safetensors", "num_ids": 5)", R"("format": 1, "top": 32)");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void write_manifest(const std::string& of_case, const std::string& head) const {
    write("manifest.json", "{" + head +
                               R"(, "oracle": "o", "checkpoint": {"name": "n", "xxh3_128": "x"},)"
                               R"("state_rows": 16, "cases": [{)" +
                               of_case + "}]}");
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(dir_ / name, std::ios::binary) << content;
  }
  std::string case_bytes() const { return *read_file(dir_ / kCase, 1 << 24); }
  std::string message() const {
    const Result<Golden> golden = load_golden(dir_, config());
    return golden.ok() ? "" : golden.status().message();
  }
  void expect_message(std::string_view part) const {
    EXPECT_NE(message().find(part), std::string::npos) << message();
  }

  static constexpr const char* kCase = "0005_code.safetensors";
  Path dir_;
};

TEST_F(DamagedGolden, UndamagedItLoads) {
  const Result<Golden> golden = load_golden(dir_, config());
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  ASSERT_EQ(golden->cases.size(), 1U);
  EXPECT_EQ(golden->cases[0].name, "0005_code");
  EXPECT_EQ(golden->cases[0].prompt.num_positions(), 5);
  EXPECT_EQ(golden->cases[0].mtp.num_positions(), 4);
}

TEST_F(DamagedGolden, AMissingFolderIsNotFound) {
  EXPECT_EQ(load_golden(dir_ / "nowhere", config()).status().code(), StatusCode::kNotFound);
}

TEST_F(DamagedGolden, TheManifestIsChecked) {
  write("manifest.json", "{");
  expect_message("manifest.json");
  write_manifest(R"("file": "0005_code.safetensors", "num_ids": 5)", R"("format": 2, "top": 32)");
  expect_message("golden format 2; this build reads 1");
  write_manifest(R"("file": "0005_code.safetensors", "num_ids": 5)", R"("format": 1, "top": 1)");
  expect_message("\"top\" is 1");
  write_manifest(R"("num_ids": 5)", R"("format": 1, "top": 32)");
  expect_message("\"file\" is missing");
  write_manifest(R"("file": "../x.safetensors", "num_ids": 5)", R"("format": 1, "top": 32)");
  expect_message("expected a name");
  write_manifest(R"("file": "gone.safetensors", "num_ids": 5)", R"("format": 1, "top": 32)");
  expect_message("gone.safetensors");
}

TEST_F(DamagedGolden, ShapesAreChecked) {
  write_manifest(R"("file": "0005_code.safetensors", "num_ids": 6)", R"("format": 1, "top": 32)");
  expect_message("tensor ids is I32 [5]; expected I32 [6]");
  write_manifest(R"("file": "0005_code.safetensors", "num_ids": 5)", R"("format": 1, "top": 16)");
  expect_message("tensor top_ids is I32 [5, 32]; expected I32 [5, 16]");
}

TEST_F(DamagedGolden, IdsOfAnotherVocabularyAreRefused) {
  ModelConfig small = config();
  small.vocab_size = 3;
  const Result<Golden> golden = load_golden(dir_, small);
  ASSERT_FALSE(golden.ok());
  EXPECT_NE(golden.status().message().find("expected 0 to 2"), std::string::npos)
      << golden.status().message();
}

TEST_F(DamagedGolden, ATruncatedFileIsRefused) {
  write(kCase, case_bytes().substr(0, 1000));
  expect_message(kCase);
}

TEST(Difference, ANanNeverPasses) {
  const std::vector<int32_t> ids = {3, 5};
  const std::vector<bf16> oracle = {to_bf16(2.0f), to_bf16(1.0f)};
  const std::vector<bf16> ours = {bf16{0x7fc0}, to_bf16(1.0f)};
  Difference difference;
  difference.add(ids, oracle, ours, 3);
  EXPECT_FALSE(bounded("x", "", difference.stats().mean, 1e9, "").passed);
  EXPECT_FALSE(bounded("x", "", difference.stats().largest, 1e9, "").passed);
}

TEST(Difference, MarginsOfFlips) {
  const std::vector<int32_t> ids = {3, 5, 9};
  const std::vector<bf16> oracle = {to_bf16(2.0f), to_bf16(2.0f), to_bf16(0.5f)};
  Difference difference;
  difference.add(ids, oracle, oracle, 5);  // a tie: as good
  EXPECT_EQ(difference.stats().num_flips, 0);
  difference.add(ids, oracle, oracle, 9);
  EXPECT_EQ(difference.stats().num_flips, 1);
  EXPECT_EQ(difference.stats().worst_margin, 1.5);
  EXPECT_EQ(margin_of(ids, oracle, 1234), 1.5);  // not among the recorded: at least this
}

TEST(OpValues, UlpsAreCountedAtTheRowsSize) {
  OpValues ours;
  ours.num_rows = 1;
  ours.num_cols = 2;
  ours.values = {1.0078125f, 1e-6f};
  const std::vector<float> oracle = {1.0f, 2e-6f};
  const UlpDifference d = ulp_difference(ours, oracle);
  EXPECT_EQ(d.max, 1.0);  // the small element is noise of its row's sum
  EXPECT_EQ(d.col, 0);
  EXPECT_EQ(ulps_between(1.0078125f, 1.0f, true), 1);
  EXPECT_EQ(ulps_between(-0.0f, 0.0f, true), 0);
  EXPECT_EQ(ulps_between(-1.0f, -1.0078125f, true), 1);
}

}  // namespace
}  // namespace sluice
