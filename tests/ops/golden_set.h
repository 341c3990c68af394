#pragma once
// What the oracle computed (tests/golden/ops, written by tools/oracle/record_ops.py) and the inputs
// it computed it from, which are generated again here and compared by checksum.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bf16.h"
#include "base/json.h"
#include "base/view.h"
#include "model/safetensors.h"

namespace sluice::golden {

template <typename T>
struct Matrix {
  std::vector<T> values;
  int64_t num_rows = 0;
  int64_t num_cols = 0;  // the last dimension; all others are rows

  Matrix() = default;
  Matrix(int64_t rows, int64_t cols)
      : values(static_cast<size_t>(rows * cols)), num_rows(rows), num_cols(cols) {}
  MatView<T> view() { return {values.data(), num_rows, num_cols}; }
  MatView<const T> view() const { return {values.data(), num_rows, num_cols}; }
  T* row(int64_t i) { return values.data() + i * num_cols; }
  const T* row(int64_t i) const { return values.data() + i * num_cols; }
};

/// A recorded tensor, widened to fp32.
struct Recorded {
  std::string name;
  Matrix<float> matrix;
  bool is_bf16 = false;
  /// Which rows of the op's output these are.
  std::vector<int64_t> rows;
};

class GoldenSet {
 public:
  /// Loads the set once; a set that cannot be read stops the program with the reason.
  static const GoldenSet& get();

  bool has(std::string_view result) const;
  Recorded result(std::string_view name) const;

  /// Inputs by name, as the manifest's recipe makes them. A checksum that differs stops the program.
  Matrix<bf16> bf16s(std::string_view name) const;
  Matrix<uint8_t> e4m3s(std::string_view name) const;
  /// f32 inputs, and bf16 ones widened (norm weights, conv taps).
  Matrix<float> floats(std::string_view name) const;
  std::vector<int32_t> ids(std::string_view name) const;

 private:
  GoldenSet(JsonValue manifest, SafetensorsFile file);

  JsonValue manifest_;
  std::unique_ptr<SafetensorsFile> file_;
};

Matrix<bf16> narrow(const Matrix<float>& m);
Matrix<float> widen(const Matrix<bf16>& m);

}  // namespace sluice::golden
