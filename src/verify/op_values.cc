#include "verify/op_values.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice {
namespace {

/// Spacing of bf16 values around x.
double bf16_ulp(double x) {
  constexpr int kMantissaBits = 7;
  if (x == 0.0) return std::ldexp(1.0, -133);
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - 1 - kMantissaBits);
}

double rms_of(std::span<const float> row) {
  double squares = 0.0;
  for (const float x : row) squares += static_cast<double>(x) * x;
  return std::sqrt(squares / static_cast<double>(row.size()));
}

/// Orders the numbers along the line of representable values.
int64_t place_of(float x, bool is_bf16) {
  const auto bits = static_cast<int64_t>(std::bit_cast<uint32_t>(x) >> (is_bf16 ? 16 : 0));
  const int64_t sign = is_bf16 ? 0x8000 : 0x80000000;
  return bits < sign ? bits : sign - bits;
}

}  // namespace

OpValues copy_values(const MemoryTable& memory, const OpOutput& output) {
  OpValues copy;
  copy.is_bf16 = output.values.data != nullptr;
  const auto fill = [&](const auto& view, auto&& widen) {
    copy.num_rows = view.num_rows;
    copy.num_cols = view.num_cols;
    copy.values.reserve(static_cast<size_t>(view.num_rows * view.num_cols));
    for (int64_t i = 0; i < view.num_rows; ++i) {
      const auto row = fetch(memory, view.row(i), view.num_cols);
      std::transform(row.begin(), row.end(), std::back_inserter(copy.values), widen);
    }
  };
  if (copy.is_bf16) {
    fill(output.values, [](bf16 x) { return to_float(x); });
  } else {
    fill(output.floats, [](float x) { return x; });
  }
  return copy;
}

void overwrite(const MemoryTable& memory, const OpOutput& output, std::span<const float> values) {
  const auto fill = [&memory, values](const auto& view, auto&& narrow) {
    SLUICE_CHECK_EQ(static_cast<int64_t>(values.size()), view.num_rows * view.num_cols);
    for (int64_t i = 0; i < view.num_rows; ++i) {
      const float* from = values.data() + i * view.num_cols;
      std::vector<decltype(narrow(0.0f))> row(static_cast<size_t>(view.num_cols));
      std::transform(from, from + view.num_cols, row.begin(), narrow);
      memory.upload(view.row(i), row.data(), row.size() * sizeof(row[0]));
    }
  };
  if (output.values.data != nullptr) {
    fill(output.values, [](float x) { return to_bf16(x); });
  } else {
    fill(output.floats, [](float x) { return x; });
  }
}

UlpDifference ulp_difference(const OpValues& a, std::span<const float> b) {
  SLUICE_CHECK_EQ(a.values.size(), b.size());
  UlpDifference out;
  out.num_elements = static_cast<int64_t>(b.size());
  double squares = 0.0;
  for (int64_t row = 0; row < a.num_rows; ++row) {
    const auto first = static_cast<size_t>(row * a.num_cols);
    const std::span<const float> row_b = b.subspan(first, static_cast<size_t>(a.num_cols));
    const double row_rms = rms_of(row_b);
    for (int64_t col = 0; col < a.num_cols; ++col) {
      const float x = a.values[first + static_cast<size_t>(col)];
      const float y = row_b[static_cast<size_t>(col)];
      if (x == y) {
        ++out.num_equal;
        continue;
      }
      const double unit = bf16_ulp(std::max(std::abs(static_cast<double>(y)), row_rms));
      double ulps = std::abs(static_cast<double>(x) - y) / unit;
      if (!std::isfinite(ulps)) ulps = INFINITY;
      squares += ulps * ulps;
      if (ulps <= out.max) continue;
      out.max = ulps;
      out.row = row;
      out.col = col;
      out.a = x;
      out.b = y;
    }
  }
  out.rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, out.num_elements)));
  return out;
}

int64_t ulps_between(float a, float b, bool is_bf16) {
  return std::abs(place_of(a, is_bf16) - place_of(b, is_bf16));
}

}  // namespace sluice
