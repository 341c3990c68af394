#include "forward/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/bf16.h"

namespace sluice {
namespace {

ModelConfig rope_config() {
  ModelConfig config;
  config.rotary_dim = 64;
  config.rope_theta = 1e7;
  return config;
}

TEST(Rope, FollowsTheFp32Chain) {
  const RopeTable table = *RopeTable::create(rope_config(), 262144);
  EXPECT_EQ(table.cos().num_cols, 32);
  EXPECT_EQ(table.cos().row(0)[5], 1.0f);
  EXPECT_EQ(table.sin().row(0)[5], 0.0f);
  // Frequency 0 is exactly 1: the angle is the position.
  EXPECT_EQ(table.cos().row(262143)[0], rb(static_cast<float>(std::cos(262143.0))));
  const float freq1 = 1.0f / static_cast<float>(std::pow(1e7, 2.0 / 64.0));
  const float angle = 262143.0f * freq1;
  EXPECT_EQ(table.sin().row(262143)[1],
            rb(static_cast<float>(std::sin(static_cast<double>(angle)))));
}

TEST(Rope, TheDoubleAngleIsAnotherFunction) {
  const RopeTable table = *RopeTable::create(rope_config(), 262144);
  int differ = 0;
  for (int64_t position = 262000; position < 262144; ++position) {
    const double angle = static_cast<double>(position) * std::pow(1e7, -2.0 / 64.0);
    differ += table.cos().row(position)[1] != rb(static_cast<float>(std::cos(angle))) ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

}  // namespace
}  // namespace sluice
