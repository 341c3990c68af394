// launch_fp8_operands against the host's quantiser, bit for bit.
#include "ops/cuda/fp8_operands.h"

#include <cmath>

#include "base/random_values.h"
#include "ops/cuda/skinny.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/fp8_twin.h"

namespace sluice {
namespace {

/// Rows of very different size; one of zeros, one with values below the least bound.
std::vector<bf16> activations(int num_rows, int num_cols) {
  std::vector<bf16> values(static_cast<size_t>(num_rows) * static_cast<size_t>(num_cols));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto m = static_cast<int>(i / static_cast<size_t>(num_cols));
    float x = std::ldexp(random_normal(7, i), m * 3 % 40 - 25);
    if (m % 9 == 4) x = 0.0f;
    if (m % 9 == 7) x = std::ldexp(x, -80);
    values[i] = to_bf16(x);
  }
  return values;
}

/// Operands on the device, with room behind them that must stay as it is.
struct Made {
  int num_rows, num_cols, scale_stride;
  DeviceArray<uint8_t> values;
  DeviceArray<float> scales;
  DeviceArray<uint16_t> f16;
  DeviceArray<bf16> normed;
  DeviceArray<int> flag{std::vector<int>{0}};
  bool f16_in_order = false;

  Made(int rows, int cols)
      : num_rows(rows),
        num_cols(cols),
        scale_stride((rows + 3) / 4 * 4 + 4),
        values(size()),
        scales(static_cast<size_t>(cols / 128 * scale_stride)),
        f16(size()),
        normed(size()) {}
  size_t size() const { return static_cast<size_t>(num_rows + 1) * static_cast<size_t>(num_cols); }

  void make(const DeviceArray<bf16>& from, const float* norm_weight) {
    cuda::Fp8OperandsArgs args = {};
    args.values = from.data();
    args.stride = num_cols;
    args.num_rows = num_rows;
    args.num_cols = num_cols;
    args.norm_weight = norm_weight;
    args.eps = 1e-6f;
    args.to = {values.data(), num_cols, scales.data(), scale_stride};
    args.f16_operands = f16.data();
    args.f16_in_order = f16_in_order;
    args.normed = norm_weight == nullptr ? nullptr : normed.data();
    args.out_stride = num_cols;
    args.range_flag = flag.data();
    ASSERT_EQ(cuda::launch_fp8_operands(args, nullptr), cudaSuccess);
  }

  void expect(const std::vector<bf16>& wanted_values) const {
    const Quantised wanted = quantise(wanted_values, num_rows, num_cols);
    const std::vector<uint8_t> codes = values.fetch();
    const std::vector<float> got_scales = scales.fetch();
    int num_wrong = 0;
    for (size_t i = 0; i < codes.size(); ++i) {
      const auto m = static_cast<int>(i) / num_cols;
      const int k = static_cast<int>(i) % num_cols;
      const size_t at = static_cast<size_t>(m) * static_cast<size_t>(num_cols) +
                        static_cast<size_t>(cuda::fp8_operand_place(k));
      num_wrong += codes[at] != (m < num_rows ? wanted.codes[i] : 0xff);
    }
    EXPECT_EQ(num_wrong, 0) << num_rows << " x " << num_cols;
    for (int b = 0; b < num_cols / 128; ++b) {
      for (int m = 0; m < scale_stride; ++m) {
        const float got = got_scales[static_cast<size_t>(b * scale_stride + m)];
        if (m >= num_rows) {
          EXPECT_TRUE(std::isnan(got)) << b << " " << m;
        } else {
          ASSERT_EQ(got, wanted.scales[static_cast<size_t>(b * num_rows + m)]) << b << " " << m;
        }
      }
    }
  }
};

TEST(Fp8Operands, AsTheHostQuantises) {
  for (const auto& [num_rows, num_cols] : {std::pair{1, 128}, {5, 384}, {33, 5120}, {9, 17408}}) {
    const std::vector<bf16> values = activations(num_rows, num_cols);
    Made made(num_rows, num_cols);
    made.make(DeviceArray<bf16>(values), nullptr);
    made.expect(values);
    EXPECT_EQ(made.flag.fetch()[0], 0);
  }
}

/// Normed values and f16 operands are those of the exact mode.
void expect_exact_modes_values(int num_rows, int num_cols, bool has_norm) {
  std::vector<bf16> values(static_cast<size_t>(num_rows * num_cols));
  for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(3.0f * random_normal(11, i));
  std::vector<float> weight(static_cast<size_t>(num_cols));
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = 0.3f * random_normal(12, i);
  const DeviceArray<bf16> from(values);
  const DeviceArray<float> norm_weight(weight);
  Made made(num_rows, num_cols);
  made.make(from, has_norm ? norm_weight.data() : nullptr);
  Made exact(num_rows, num_cols);
  cuda::OperandsArgs args = {};
  args.values = from.data();
  args.stride = num_cols;
  args.num_rows = num_rows;
  args.num_cols = num_cols;
  args.norm_weight = has_norm ? norm_weight.data() : nullptr;
  args.eps = 1e-6f;
  args.operands = exact.f16.data();
  args.normed = exact.normed.data();
  args.out_stride = num_cols;
  args.range_flag = exact.flag.data();
  ASSERT_EQ(cuda::launch_operands(args, nullptr), cudaSuccess);
  EXPECT_EQ(made.f16.fetch(), exact.f16.fetch());
  std::vector<bf16> wanted = exact.normed.fetch();
  if (has_norm) {
    const std::vector<bf16> got = made.normed.fetch();
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].bits, wanted[i].bits) << i;
  }
  wanted.resize(values.size());
  made.expect(wanted);
}

TEST(Fp8Operands, NormedAsTheExactModeNorms) {
  for (const bool has_norm : {false, true}) {
    for (const auto& [num_rows, num_cols] : {std::pair{1, 128}, {7, 384}, {33, 5120}}) {
      expect_exact_modes_values(num_rows, num_cols, has_norm);
    }
  }
}

TEST(Fp8Operands, AgainFromF16OperandsTheSame) {
  for (const auto& [num_rows, num_cols] : {std::pair{1, 128}, {7, 384}, {33, 6144}}) {
    std::vector<bf16> values(static_cast<size_t>(num_rows * num_cols));
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(3.0f * random_normal(13, i));
    Made made(num_rows, num_cols);
    made.make(DeviceArray<bf16>(values), nullptr);
    made.values.poison();
    made.scales.poison();
    cuda::Fp8RequantiseArgs args = {};
    args.operands = made.f16.data();
    args.stride = num_cols;
    args.num_rows = num_rows;
    args.num_cols = num_cols;
    args.to = {made.values.data(), num_cols, made.scales.data(), made.scale_stride};
    args.range_flag = made.flag.data();
    ASSERT_EQ(cuda::launch_fp8_requantise(args, nullptr), cudaSuccess);
    made.expect(values);
    EXPECT_EQ(made.flag.fetch()[0], 0);
  }
}

TEST(Fp8Operands, InNaturalOrderToo) {
  for (const bool has_norm : {false, true}) {
    constexpr int kRows = 9;
    constexpr int kCols = 384;
    std::vector<bf16> values(size_t{kRows * kCols});
    for (size_t i = 0; i < values.size(); ++i) values[i] = to_bf16(3.0f * random_normal(11, i));
    const DeviceArray<bf16> from(values);
    const DeviceArray<float> norm_weight(std::vector<float>(size_t{kCols}, 0.25f));
    const float* weight = has_norm ? norm_weight.data() : nullptr;
    Made ordered(kRows, kCols);
    ordered.make(from, weight);
    Made natural(kRows, kCols);
    natural.f16_in_order = true;
    natural.make(from, weight);
    const std::vector<uint16_t> wanted = ordered.f16.fetch();
    const std::vector<uint16_t> got = natural.f16.fetch();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t row = i / kCols * kCols;
      const auto place = static_cast<size_t>(cuda::operand_place(static_cast<int>(i % kCols)));
      ASSERT_EQ(got[i], wanted[row + place]) << i;
    }
  }
}

TEST(Fp8Operands, WhatIsNotFiniteRaisesTheFlag) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    std::vector<bf16> values(2 * 256, to_bf16(1.0f));
    values[300] = to_bf16(bad);
    Made made(2, 256);
    made.make(DeviceArray<bf16>(values), nullptr);
    EXPECT_EQ(made.flag.fetch()[0], 1) << bad;
    const uint8_t code =
        made.values.fetch()[static_cast<size_t>(256 + cuda::fp8_operand_place(44))];
    EXPECT_TRUE(std::isnan(widen_e4m3(code)));
  }
}

}  // namespace
}  // namespace sluice
