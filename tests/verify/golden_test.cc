// Goldens that are damaged or belong to another model get one clear line each.

#include "verify/golden.h"

#include <gtest/gtest.h>

#include <cmath>
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
    for (const char* name : {kCase, "ops.safetensors"}) {
      std::filesystem::copy_file(kGolden / name, dir_ / name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
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
  for (const char* count : {"0", "-1", "-2", "9000000000"}) {
    write_manifest(fmt::format(R"("file": "0005_code.safetensors", "num_ids": {})", count),
                   R"("format": 1, "top": 32)");
    expect_message("\"num_ids\" is ");
  }
  write_manifest(R"("file": "0005_code.safetensors", "num_ids": "5")", R"("format": 1, "top": 32)");
  expect_message("\"num_ids\" is missing or not an integer");
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

/// Writes one bf16 value over the tensor's first.
void set_first_value(std::string* file, const std::string& tensor, uint16_t bits) {
  const std::vector<TensorEntry> entries =
      *parse_safetensors_header(std::as_bytes(std::span(*file)), file->size(), "the test's file");
  for (const TensorEntry& entry : entries) {
    if (entry.name == tensor) std::memcpy(file->data() + entry.begin, &bits, sizeof(bits));
  }
}

TEST_F(DamagedGolden, ValuesThatAreNotFiniteAreRefused) {
  const std::string right = case_bytes();
  for (const char* tensor : {"top_logits", "gen_logits", "dither_logits", "full_logits"}) {
    for (const int bits : {0x7fc0, 0x7f80, 0xff80}) {
      std::string bytes = right;
      set_first_value(&bytes, tensor, static_cast<uint16_t>(bits));
      ASSERT_NE(bytes, right) << tensor;
      write(kCase, bytes);
      expect_message(fmt::format("tensor {} holds", tensor));
    }
  }
}

TEST_F(DamagedGolden, LogitsOutOfOrderAreRefused) {
  std::string bytes = case_bytes();
  set_first_value(&bytes, "top_logits", 0xc000);  // -2: below the second
  write(kCase, bytes);
  expect_message("expected distinct ids, largest logit first");
}

TEST_F(DamagedGolden, OpsMustBeThere) {
  std::filesystem::remove(dir_ / "ops.safetensors");
  expect_message("ops.safetensors");
  std::filesystem::create_symlink("ops.safetensors", dir_ / "ops.safetensors");
  expect_message("ops.safetensors");
}

/// An envelope that any logits would fit is no envelope.
TEST(Envelope, ANoiseAsLargeAsTheLogitsIsRefused) {
  Golden golden = *load_golden(kGolden, config());
  const Envelope exact = make_envelope(golden).value();
  const Envelope wide = widened_for_fp8(exact);
  EXPECT_GT(wide.mean, exact.mean);
  EXPECT_EQ(wide.widening * exact.p99, wide.p99);
  EXPECT_LE(wide.flip_share, 1.0);
  for (GoldenCase& c : golden.cases) {
    if (!c.generation) continue;
    for (bf16& x : c.generation->top_logits) x = to_bf16(to_float(x) + 40.0f);
  }
  EXPECT_NE(make_envelope(golden).status().message().find("anything would pass"),
            std::string::npos);
  for (GoldenCase& c : golden.cases) c.generation.reset();
  EXPECT_NE(make_envelope(golden).status().message().find("at 0 positions"), std::string::npos);
}

TEST(Report, ALimitThatIsNotFiniteIsNone) {
  EXPECT_FALSE(bounded("x", "", 1.0, INFINITY, "").passed);
  EXPECT_FALSE(bounded("x", "", INFINITY, INFINITY, "").passed);
  EXPECT_FALSE(bounded("x", "", 1.0, NAN, "").passed);
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
  difference.add(ids, oracle, oracle, 1234);
  EXPECT_EQ(difference.stats().num_outside, 1);  // nothing explains it
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
