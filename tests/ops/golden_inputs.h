#pragma once
// The integer generator of tools/oracle/generated.py, bit for bit.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bf16.h"

namespace sluice::golden {

struct Recipe {
  std::string name;
  std::vector<int64_t> shape;
  std::string kind;  // generated.py's KINDS
  float scale = 1.0f;
  int64_t shift = 0;

  int64_t num_cols() const { return shape.empty() ? 1 : shape.back(); }
  int64_t num_elements() const;
};

std::vector<float> generate(const Recipe& recipe);

/// Sum over elements of bits * (2 i + 1), mod 2^64.
template <typename Bits>
uint64_t checksum(const Bits* bits, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<uint64_t>(bits[i]) * (2 * i + 1);
  return sum;
}

}  // namespace sluice::golden
