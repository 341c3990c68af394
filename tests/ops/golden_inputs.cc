#include "tests/ops/golden_inputs.h"

#include <cmath>

#include "base/check.h"

namespace sluice::golden {
namespace {

uint64_t fnv1a64(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return h;
}

uint64_t splitmix64(uint64_t seed, uint64_t i) {
  uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The sum of the four 16-bit fields, centred: bell-shaped.
float bell(uint64_t bits, const Recipe& recipe) {
  int64_t sum = recipe.shift - 131070;
  for (int k = 0; k < 4; ++k) sum += static_cast<int64_t>(bits >> (16 * k) & 0xffffu);
  return static_cast<float>(sum) * recipe.scale;
}

float decay(uint64_t bits, int64_t col, int64_t num_cols) {
  const int64_t exponent = -13 + col * 16 / num_cols + static_cast<int64_t>((bits >> 16) % 3);
  const float mantissa = 1.0f + static_cast<float>(bits & 0xffffu) * 0x1p-16f;
  return -std::ldexp(mantissa, static_cast<int>(exponent));
}

float element(const Recipe& recipe, uint64_t bits, int64_t col) {
  if (recipe.kind == "unit") {
    return (static_cast<float>(bits & 0xffffu) * 2.0f + 1.0f) * 0x1p-17f;
  }
  if (recipe.kind == "decay") return decay(bits, col, recipe.num_cols());
  if (recipe.kind == "ids") return static_cast<float>(bits % static_cast<uint64_t>(recipe.scale));
  const float v = bell(bits, recipe);
  if (recipe.kind == "residual") return col % 61 == 7 ? v * 16.0f : v;
  if (recipe.kind == "silu") return v < 0.0f ? v * 0.125f : v;
  SLUICE_CHECK(recipe.kind == "normal");
  return v;
}

}  // namespace

int64_t Recipe::num_elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

std::vector<float> generate(const Recipe& recipe) {
  const uint64_t seed = fnv1a64(recipe.name);
  std::vector<float> out;
  const auto n = static_cast<uint64_t>(recipe.num_elements());
  out.reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const int64_t col = static_cast<int64_t>(i) % recipe.num_cols();
    out.push_back(element(recipe, splitmix64(seed, i), col));
  }
  return out;
}

}  // namespace sluice::golden
