// launch_gdn_prefill: values against fp64, bits against cuts, scratch sizes and company.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/gpu/fp8_twin.h"
#include "tests/gpu/gdn_prefill_truth.h"
#include "tests/ops/rng.h"

namespace sluice {
namespace {

constexpr int kChunk = static_cast<int>(kGdnChunk);

int chunks_of(int num_rows) {
  return (num_rows + kChunk - 1) / kChunk;
}

bool has_sm90() {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  return major == 9;
}

/// Bounds of a state: fp32 sums of the chunk rule come to 3e-6 .. 1.3e-5 of its rms (measured on the host, in fp32 without f16 pairs).
constexpr double kStateBound = 3e-5;
/// A flip of o's rounding may move the norm's three roundings on.
constexpr double kOperandBound = 4.0;
constexpr double kFlipsBound = 5e-3;
constexpr double kConvFlipsBound = 2e-3;

bool passes(const PrefillErrors& errors) {
  return errors.state <= kStateBound && errors.checkpoint <= kStateBound &&
         errors.operand <= kOperandBound && errors.flips <= kFlipsBound;
}

struct Case {
  PrefillShape shape;
  std::vector<int> heads;  // judged
};

class GdnPrefill : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_sm90()) GTEST_SKIP() << "sm_90a only";
  }
};
class GdnPrefillValues : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_sm90()) GTEST_SKIP() << "sm_90a only";
  }
};

TEST_P(GdnPrefillValues, AgreeWithFp64) {
  const Case& c = GetParam();
  PrefillLayer layer(c.shape);
  PrefillDevice device(layer, chunks_of(c.shape.num_rows));
  const std::vector<bf16> convolved = device.convolved();
  EXPECT_LE(judge_convolved(layer, convolved), kConvFlipsBound);
  const RowRun run = layer.run(0, c.shape.num_rows);
  device.launch({&run, 1}, chunks_of(c.shape.num_rows));
  const PrefillResult result = device.result();
  const PrefillErrors errors = judge_prefill(layer, convolved, result, c.heads);
  RecordProperty("state", std::to_string(errors.state));
  RecordProperty("flips", std::to_string(errors.flips));
  EXPECT_LE(errors.state, kStateBound);
  EXPECT_LE(errors.checkpoint, kStateBound);
  EXPECT_LE(errors.operand, kOperandBound);
  EXPECT_LE(errors.flips, kFlipsBound);
  EXPECT_EQ(result.range_flag, 0);
  const std::vector<bf16> ring = rings_behind(layer);
  EXPECT_EQ(std::memcmp(ring.data(), result.ring.data(), ring.size() * sizeof(bf16)), 0);
  // Slots and rows of nobody.
  const auto others = static_cast<int64_t>(2 * layer.state_stride());
  EXPECT_TRUE(
      std::equal(layer.state.begin() + others, layer.state.end(), result.state.begin() + others));
  const auto is_poison = [](uint16_t x) { return x == 0xffff; };
  const auto before = static_cast<int64_t>(kPrefillRowsBefore) * layer.width();
  const auto behind = static_cast<int64_t>(kPrefillRowsBehind) * layer.width();
  EXPECT_TRUE(std::all_of(result.operands.begin(), result.operands.begin() + before, is_poison));
  EXPECT_TRUE(std::all_of(result.operands.end() - behind, result.operands.end(), is_poison));
  device.reset();
  device.launch({&run, 1}, chunks_of(c.shape.num_rows));
  EXPECT_EQ(device.result(), result);
  // The judge sees a decay that is a hundredth off.
  for (float& x : layer.A_log) x += 0.01f;
  EXPECT_FALSE(passes(judge_prefill(layer, convolved, result, std::span(c.heads).first(1))));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, GdnPrefillValues,
    ::testing::Values(Case{{2, 6, 200, 128, 1}, {0, 1, 2, 3, 4, 5}},
                      Case{{16, 48, 330, 0, 2}, {0, 1, 2, 25, 47}},
                      Case{{16, 16, 64, 0, 3}, {0, 15}}, Case{{16, 32, 97, 64, 4}, {0, 31}},
                      Case{{1, 3, 1, 64, 5}, {0, 1, 2}}, Case{{1, 2, 63, 0, 6}, {0, 1}},
                      Case{{1, 1, 65, 0, 7}, {0}}, Case{{2, 6, 2048, 0, 8, true}, {0, 5}}));

/// The run in random pieces that begin at multiples of 64, each with a random part of the scratch.
void launch_in_pieces(const PrefillLayer& layer, PrefillDevice& device, Rng& rng) {
  const int num_rows = layer.shape.num_rows;
  const int chunks = chunks_of(num_rows);
  for (int begin = 0; begin < num_rows;) {
    const int most = 1 + static_cast<int>(rng.below(chunks));
    const int end = std::min(num_rows, begin + kChunk * most);
    const RowRun run = layer.run(begin, end);
    device.launch({&run, 1}, 1 + static_cast<int>(rng.below(chunks)));
    begin = end;
  }
}

TEST_F(GdnPrefill, BitsDoNotDependOnCutsOrScratch) {
  for (const PrefillShape& shape :
       {PrefillShape{2, 6, 700, 64, 11}, PrefillShape{16, 48, 420, 0, 12}}) {
    const PrefillLayer layer(shape);
    PrefillDevice device(layer, chunks_of(shape.num_rows));
    const RowRun run = layer.run(0, shape.num_rows);
    device.launch({&run, 1}, chunks_of(shape.num_rows));
    const PrefillResult whole = device.result();
    Rng rng(13);
    for (int i = 0; i < (shape.num_v_heads == 6 ? 150 : 50); ++i) {
      device.reset();
      launch_in_pieces(layer, device, rng);
      ASSERT_EQ(device.result(), whole) << "cut " << i;
    }
  }
}

TEST_F(GdnPrefill, ShorterRunsHaveTheSameRows) {
  const PrefillLayer layer({16, 48, 330, 64, 21});
  PrefillDevice device(layer, 6);
  const RowRun run = layer.run(0, 330);
  device.launch({&run, 1}, 6);
  const PrefillResult whole = device.result();
  for (const int rows : {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 200, 329}) {
    const RowRun shorter = layer.run(0, rows);
    device.reset();
    device.launch({&shorter, 1}, 6);
    EXPECT_TRUE(whole.has_rows_of(device.result(), layer, rows)) << rows;
  }
}

TEST_F(GdnPrefill, CompanyChangesNothing) {
  const PrefillLayer layer({16, 48, 700, 64, 31});
  PrefillDevice device(layer, 12);
  std::vector<RowRun> runs = {layer.run(0, 300), layer.run(300, 316), layer.run(316, 700)};
  runs[1].position = 0, runs[1].slot = 2, runs[1].checkpoint_slot = kNoSlot;
  runs[2].position = 128, runs[2].slot = 3, runs[2].checkpoint_slot = kNoSlot;
  for (const RowRun& run : runs) device.launch({&run, 1}, 12);
  const PrefillResult alone = device.result();
  for (const int scratch_chunks : {1, 4, 12}) {
    device.reset();
    device.launch(runs, scratch_chunks);
    EXPECT_EQ(device.result(), alone) << scratch_chunks;
  }
}

TEST_F(GdnPrefill, QuantisesWhatItWouldStore) {
  const PrefillLayer layer({2, 6, 200, 0, 11});
  PrefillDevice device(layer, 64);
  const RowRun run = layer.run(0, layer.shape.num_rows);
  device.launch({&run, 1}, 64);
  const PrefillResult as_f16 = device.result();
  const int rows = layer.step_rows();
  const int width = layer.width();
  const int stride = (rows + 3) / 4 * 4;
  const DeviceArray<uint8_t> codes(as_f16.operands.size());
  const DeviceArray<float> scales(static_cast<size_t>(width / 128 * stride));
  device.reset();
  device.launch({&run, 1}, 64, {codes.data(), width, scales.data(), stride});
  const PrefillResult as_fp8 = device.result();
  EXPECT_EQ(as_fp8.range_flag, 0);
  EXPECT_TRUE(std::ranges::all_of(as_fp8.operands, [](uint16_t x) { return x == 0xffff; }));
  // Rows of no run: poison that no value is compared with.
  const std::vector<uint8_t> got = codes.fetch();
  const auto row_bytes = static_cast<ptrdiff_t>(width);
  const auto is_poison = [](uint8_t x) { return x == 0xff; };
  EXPECT_TRUE(std::all_of(got.begin(), got.begin() + kPrefillRowsBefore * row_bytes, is_poison));
  EXPECT_TRUE(std::all_of(got.end() - kPrefillRowsBehind * row_bytes, got.end(), is_poison));
  const QuantisedMatch match =
      match_quantised(as_f16.operands, rows, width, got, scales.fetch(), stride);
  EXPECT_GT(match.num_compared, run.num_rows * width / 2);
  EXPECT_EQ(match.num_wrong, 0);
}

TEST_F(GdnPrefill, ValuesBeyondAnOperandRaiseTheFlag) {
  PrefillLayer layer({1, 1, 64, 64, 41});
  for (float& x : layer.state) x *= 1e7f;
  PrefillDevice device(layer, 1);
  const RowRun run = layer.run(0, 64);
  device.launch({&run, 1}, 1);
  EXPECT_EQ(device.result().range_flag, 1);
}

}  // namespace
}  // namespace sluice
