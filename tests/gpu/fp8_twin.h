#pragma once
// What gemm_fp8.h and fp8_operands.h promise, by scalar code on the host.

#include <cstdint>
#include <span>
#include <vector>

#include "base/bf16.h"

namespace sluice {

float widen_e4m3(uint8_t code);
/// Nearest even, saturating; NaN is 0x7f.
uint8_t narrow_e4m3(float x);

/// [num_rows, num_cols] in natural order, and [num_cols / 128, num_rows] scales (times 2^-4).
struct Quantised {
  int num_rows, num_cols;
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  /// In fp64, the factor of 2^-4 undone.
  double value(int m, int k) const;
};
Quantised quantise(const std::vector<bf16>& values, int num_rows, int num_cols);

/// How codes and scales as fp8_operands.h lays them out, one behind the other, compare with those of values that f16 operands (packed.h) stand for. Values that those
/// do not hold exactly are left out.
struct QuantisedMatch {
  int num_compared = 0;
  int num_wrong = 0;
};
QuantisedMatch match_quantised(std::span<const uint16_t> operands, int num_rows, int num_cols,
                               std::span<const uint8_t> codes, std::span<const float> scales,
                               int scale_stride);

/// A block-FP8 weight, natural order, scales as published, and packed as the device has it (packed.h).
struct Fp8Weight {
  int num_out, num_in;
  std::vector<uint8_t> codes;
  std::vector<float> scales;  // [ceil(num_out / 128), num_in / 128]

  double value(int n, int k) const;
  std::vector<uint8_t> packed() const;
  std::vector<float> packed_scales() const;
};
/// Codes as of a normal distribution whose largest value of a block is near 448.
Fp8Weight random_fp8_weight(int num_out, int num_in, uint64_t key);

/// Row m of x times row n of w, exactly.
double exact_product(const Quantised& x, int m, const Fp8Weight& w, int n);

}  // namespace sluice
