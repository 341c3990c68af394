#pragma once
// Views own nothing.

#include <cstdint>
#include <type_traits>

#include "base/check.h"

namespace sluice {

/// A row-major matrix with a row stride in elements.
template <typename T>
struct MatView {
  T* data = nullptr;
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t stride = 0;

  MatView() = default;
  MatView(T* d, int64_t rows, int64_t cols) : MatView(d, rows, cols, cols) {}
  MatView(T* d, int64_t rows, int64_t cols, int64_t row_stride)
      : data(d), num_rows(rows), num_cols(cols), stride(row_stride) {
    SLUICE_CHECK_GE(row_stride, cols);
  }
  /// A mutable view reads as a const one.
  operator MatView<const T>() const  // NOLINT: implicit on purpose
      requires(!std::is_const_v<T>) {
    return MatView<const T>(data, num_rows, num_cols, stride);
  }

  T* row(int64_t i) const { return data + i * stride; }
  /// Rows [first, first + count).
  MatView rows(int64_t first, int64_t count) const {
    SLUICE_CHECK_LE(first + count, num_rows);
    return MatView(row(first), count, num_cols, stride);
  }
  /// Columns [first, first + count).
  MatView cols(int64_t first, int64_t count) const {
    SLUICE_CHECK_LE(first + count, num_cols);
    return MatView(data + first, num_rows, count, stride);
  }
};

}  // namespace sluice
