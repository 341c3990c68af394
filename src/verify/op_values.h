#pragma once

#include <string>
#include <vector>

#include "ops/op_tap.h"

namespace sluice {

/// A copy of one op output, widened.
struct OpValues {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  bool is_bf16 = true;
  std::vector<float> values;
};
OpValues copy_values(const MemoryTable& memory, const OpOutput& output);
/// Pre: as many rows and columns as the output has (columns beyond a narrower output are not touched).
void overwrite(const MemoryTable& memory, const OpOutput& output, std::span<const float> values);

/// How far two copies of an output lie apart, in units in the last place of bf16 at an element's size or its row's
/// root mean square, whichever is larger: small elements of a sum carry the sum's error, not their own.
struct UlpDifference {
  double rms = 0.0;
  double max = 0.0;
  int64_t num_equal = 0;
  int64_t num_elements = 0;
  int64_t row = 0, col = 0;  // of the largest
  float a = 0.0f, b = 0.0f;  // there
};
UlpDifference ulp_difference(const OpValues& a, std::span<const float> b);

/// Representable bf16 (or fp32) values from a to b: the plain distance of two numbers.
int64_t ulps_between(float a, float b, bool is_bf16);

}  // namespace sluice
