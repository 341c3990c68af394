#include "base/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sluice {
namespace {

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(x)))));
    } else {
      ASSERT_EQ(to_bf16(to_float(x)), x) << bits;
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(rb(1.0f + 0x1p-8f), 1.0f);                // tie, even below
  EXPECT_EQ(rb(1.0f + 3 * 0x1p-8f), 1.0f + 0x1p-6f);  // tie, even above
  EXPECT_EQ(rb(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isinf(rb(std::numeric_limits<float>::max())));
}

TEST(E4m3, EveryValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto b = static_cast<uint8_t>(bits);
    if (e4m3_is_nan(b)) {
      EXPECT_TRUE(std::isnan(e4m3_to_float(b)));
    } else {
      ASSERT_EQ(float_to_e4m3(e4m3_to_float(b)), b) << bits;
    }
  }
}

TEST(E4m3, KnownValuesAndSaturation) {
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0xb8), -1.0f);
  EXPECT_EQ(float_to_e4m3(1e9f), 0x7e);
  EXPECT_EQ(float_to_e4m3(-1e9f), 0xfe);
  EXPECT_EQ(e4m3_to_float(float_to_e4m3(1.0625f)), 1.0f);   // tie to even
  EXPECT_EQ(e4m3_to_float(float_to_e4m3(1.1875f)), 1.25f);  // tie to even
}

TEST(F16, KnownValues) {
  EXPECT_EQ(f16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(f16_to_float(0xfbff), -65504.0f);
  EXPECT_TRUE(std::isinf(f16_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(f16_to_float(0x7e00)));
}

}  // namespace
}  // namespace sluice
