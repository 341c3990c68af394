// Prefill attention against fp64, and its bits over cuts, pages, company and plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ops/cuda/cuda_ops.h"
#include "tests/gpu/attention_prefill_case.h"

namespace sluice::testing {
namespace {

struct Size {
  HeadCounts heads;
  int num_rows;
  int num_cuts;
};

/// The family's ratios; several spans of the context, the last of them partly filled.
class AttentionPrefillTest : public ::testing::TestWithParam<Size> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cuda_ops().ok());
    if (!cuda_has_prefill()) GTEST_SKIP() << "this GPU has no wgmma";
  }
};

std::vector<Piece> random_pieces(int num_rows, std::mt19937* rng) {
  std::vector<int> ends = {num_rows};
  for (auto i = (*rng)() % 6; i > 0; --i) {
    ends.push_back(1 + static_cast<int>((*rng)() % static_cast<unsigned>(num_rows - 1)));
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::vector<Piece> pieces;
  for (const int end : ends) pieces.push_back({pieces.empty() ? 0 : pieces.back().end, end});
  return pieces;
}

std::string text(std::span<const Piece> pieces) {
  std::string out;
  for (const Piece& piece : pieces) out += std::to_string(piece.end) + " ";
  return out;
}

TEST_P(AttentionPrefillTest, AgreesWithFp64AsTheEagerFormDoes) {
  AttentionCase attention(GetParam().heads, GetParam().num_rows, 1);
  const int last = attention.num_rows() - 1;
  const std::vector<int> rows = {0, 1, 63, 64, 257, last / 2, last - 3, last};
  const Piece whole = {0, attention.num_rows()};
  const std::vector<uint16_t> operands = attention.run({&whole, 1}, {});
  EXPECT_EQ(attention.num_wrong_kv(), 0);
  EXPECT_FALSE(attention.is_out_of_range());
  const AttentionCase::Errors errors = attention.errors(operands, rows);
  EXPECT_LE(errors.ours, 2.0 * errors.eager + 1e-4);
  attention.spoil_queries();
  EXPECT_GT(attention.errors(operands, rows).ours, 2.0 * errors.eager + 1e-4);
}

TEST_P(AttentionPrefillTest, BitsDoNotDependOnCutsPagesCompanyOrPlan) {
  AttentionCase attention(GetParam().heads, GetParam().num_rows, 2);
  const Piece whole = {0, attention.num_rows()};
  const std::vector<uint16_t> expected = attention.run({&whole, 1}, {});
  std::mt19937 rng(3);
  for (int i = 0; i < GetParam().num_cuts; ++i) {
    const std::vector<Piece> pieces = random_pieces(attention.num_rows(), &rng);
    AttentionCase::Way way;
    way.split = static_cast<int>(rng() % 3) - 1;
    way.tiles_from_first_row = rng() % 3 == 0;
    way.num_padding = static_cast<int>(rng() % 3) * 5;
    way.num_strangers = i % 4 == 0 ? 1 + static_cast<int>(rng() % 300) : 0;
    way.page_seed = rng();
    ASSERT_TRUE(attention.run(pieces, way) == expected)
        << "cut " << i << " at " << text(pieces) << "split " << way.split;
  }
}

INSTANTIATE_TEST_SUITE_P(Family, AttentionPrefillTest,
                         ::testing::Values(Size{{8, 2}, 1100, 100}, Size{{16, 4}, 700, 60},
                                           Size{{24, 4}, 700, 60}, Size{{24, 4}, 2200, 10}));

}  // namespace
}  // namespace sluice::testing
