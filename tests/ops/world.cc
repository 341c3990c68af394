#include "tests/ops/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace sluice {
namespace {

constexpr uint16_t kPoisonBf16 = 0x7fc1;
constexpr uint32_t kPoisonF32 = 0x7fc0dead;

template <typename T>
T element(const Tensor& t, int64_t i) {
  T out;
  std::memcpy(&out, t.bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return out;
}

/// Sign-magnitude bits as an integer that grows with the value, so that ulps subtract.
int64_t ordered(const Tensor& t, int64_t i) {
  if (t.dtype == DType::kBf16) {
    const int64_t bits = element<uint16_t>(t, i);
    return bits < 0x8000 ? bits : 0x8000 - bits;
  }
  const int64_t bits = element<uint32_t>(t, i);
  return bits < 0x80000000 ? bits : 0x80000000 - bits;
}

bool same_bits(const Tensor& a, const Tensor& b, int64_t i) {
  const size_t n = a.element_size();
  const size_t offset = static_cast<size_t>(i) * n;
  return std::memcmp(a.bytes.data() + offset, b.bytes.data() + offset, n) == 0;
}

int64_t num_elements(const Tensor& t) {
  return static_cast<int64_t>(t.writable.size());
}

std::string describe(const Tensor& expected, const Tensor& got, int64_t i, std::string_view why) {
  return fmt::format("{}[{}, {}]: expected {}, got {}, {} ulps apart ({})", expected.name,
                     i / expected.stride, i % expected.stride, expected.value(i), got.value(i),
                     ordered(got, i) - ordered(expected, i), why);
}

double row_magnitude(const Tensor& t, int64_t row) {
  double max = 0.0;
  for (int64_t i = row * t.stride; i < row * t.stride + t.cols; ++i) {
    if (t.writable[static_cast<size_t>(i)]) max = std::max(max, std::abs(t.value(i)));
  }
  return max;
}

bool within(const Tensor& expected, const Tensor& got, int64_t i, double magnitude) {
  const double e = expected.value(i);
  const double g = got.value(i);
  if (std::isnan(e) || std::isnan(g)) return false;
  if (std::abs(ordered(got, i) - ordered(expected, i)) <= expected.tolerance.ulps) return true;
  return std::abs(e - g) <= expected.tolerance.floor * magnitude;
}

Failure compare_tensor(const Tensor& expected, const Tensor& got) {
  int64_t num_written = 0;
  int64_t num_differ = 0;
  for (int64_t row = 0; row < expected.rows; ++row) {
    const double magnitude = row_magnitude(expected, row);
    for (int64_t i = row * expected.stride; i < row * expected.stride + expected.cols; ++i) {
      if (!expected.writable[static_cast<size_t>(i)]) continue;
      ++num_written;
      num_differ += !same_bits(expected, got, i);
      if (!within(expected, got, i, magnitude)) return describe(expected, got, i, "tolerance");
    }
  }
  const auto limit = expected.tolerance.mismatch * static_cast<double>(num_written);
  // A flip of one rounding in a small tensor proves nothing.
  if (static_cast<double>(num_differ) <= std::max(limit, 4.0)) return std::nullopt;
  return fmt::format("{}: {} of {} values differ from the arbiter's bits, {:.0f} allowed",
                     expected.name, num_differ, num_written, limit);
}

template <typename Include>
Failure first_difference(const World& expected, const World& got, std::string_view why,
                         Include include) {
  for (size_t t = 0; t < expected.tensors.size(); ++t) {
    const Tensor& e = expected.tensors[t];
    const Tensor& g = got.tensors[t];
    for (int64_t i = 0; i < num_elements(e); ++i) {
      if (include(e, i) && !same_bits(e, g, i)) return describe(e, g, i, why);
    }
  }
  return std::nullopt;
}

}  // namespace

size_t Tensor::element_size() const {
  switch (dtype) {
    case DType::kBf16:
      return 2;
    case DType::kU8:
      return 1;
    default:
      return 4;
  }
}

double Tensor::value(int64_t i) const {
  switch (dtype) {
    case DType::kBf16:
      return static_cast<double>(to_float(element<bf16>(*this, i)));
    case DType::kF32:
      return static_cast<double>(element<float>(*this, i));
    case DType::kI32:
      return element<int32_t>(*this, i);
    case DType::kU8:
      return element<uint8_t>(*this, i);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

size_t World::add_tensor(std::string name, DType dtype, int64_t rows, int64_t cols,
                         int64_t stride) {
  Tensor t{.name = std::move(name), .dtype = dtype, .rows = rows, .cols = cols, .stride = stride};
  const auto n = static_cast<size_t>(rows * stride);
  t.writable.resize(n, 0);
  t.bytes.resize(n * t.element_size(), std::byte{0xff});
  for (size_t i = 0; i < n; ++i) {
    if (dtype == DType::kBf16) std::memcpy(t.bytes.data() + 2 * i, &kPoisonBf16, 2);
    if (dtype == DType::kF32) std::memcpy(t.bytes.data() + 4 * i, &kPoisonF32, 4);
  }
  tensors.push_back(std::move(t));
  return tensors.size() - 1;
}

void World::mark_writable(size_t index, int64_t row, int64_t first_col, int64_t num_cols) {
  Tensor& t = tensors[index];
  const auto begin = t.writable.begin() + row * t.stride + first_col;
  std::fill(begin, begin + num_cols, uint8_t{1});
}

Failure compare_values(const World& expected, const World& got) {
  for (size_t t = 0; t < expected.tensors.size(); ++t) {
    if (Failure f = compare_tensor(expected.tensors[t], got.tensors[t])) return f;
  }
  return std::nullopt;
}

Failure compare_bits(const World& expected, const World& got) {
  return first_difference(expected, got, "bits", [](const Tensor&, int64_t) { return true; });
}

Failure compare_untouched(const World& before, const World& got) {
  return first_difference(before, got, "must not be written", [](const Tensor& t, int64_t i) {
    return t.writable[static_cast<size_t>(i)] == 0;
  });
}

}  // namespace sluice
