#include "decode/noise.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

// Known answers of the authors' own test vectors (Random123, kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
  const std::array<uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), zeros);
  const uint32_t f = 0xffffffff;
  const std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), ones);
}

TEST(Gumbel, HasTheMeanAndVarianceOfTheDistribution) {
  constexpr int kCount = 200000;
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < kCount; ++i) {
    const double x = gumbel_noise(7, i / 100, i % 100);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5772156649, 0.015);
  EXPECT_NEAR(squares / kCount - mean * mean, 1.6449340668, 0.04);
}

TEST(Gumbel, DependsOnEveryArgument) {
  const double base = gumbel_noise(1, 2, 3);
  EXPECT_EQ(base, gumbel_noise(1, 2, 3));
  EXPECT_NE(base, gumbel_noise(1 + (uint64_t{1} << 40), 2, 3));
  EXPECT_NE(base, gumbel_noise(1, 3, 3));
  EXPECT_NE(base, gumbel_noise(1, 2, 4));
}

}  // namespace
}  // namespace sluice
