#pragma once
// The memory of one op case: every tensor the op may see, copied whole for each implementation, so
// that "what did it write" is a comparison of bytes.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/view.h"

namespace sluice {

enum class DType { kBf16, kF32, kI32, kU8 };

/// How far a value may be from the arbiter's. A value passes when it is within `ulps` of its own
/// format, or within `floor` times the largest magnitude of its row. At most `mismatch` of a
/// tensor's values may differ at all: this is what sees a rounding site that is missing.
struct Tolerance {
  int64_t ulps = 1;
  double floor = 0.0;
  double mismatch = 0.02;
};

struct Tensor {
  std::string name;
  DType dtype = DType::kBf16;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements
  Tolerance tolerance = {};
  std::vector<std::byte> bytes = {};
  std::vector<uint8_t> writable = {};  // per element; all else must stay as it was

  double value(int64_t element) const;
  size_t element_size() const;
};

template <typename T>
struct TensorRef {
  size_t index = 0;
};

class World {
 public:
  /// A tensor of NaN poison (integers: -1). `pad` elements of poison lie between rows.
  template <typename T>
  TensorRef<T> add(std::string name, int64_t rows, int64_t cols, int64_t pad = 0) {
    return TensorRef<T>{add_tensor(std::move(name), dtype_of(T{}), rows, cols, cols + pad)};
  }
  /// As add(), the values drawn from `draw`.
  template <typename T, typename Draw>
  TensorRef<T> filled(std::string name, int64_t rows, int64_t cols, Draw draw, int64_t pad = 0) {
    const TensorRef<T> ref = add<T>(std::move(name), rows, cols, pad);
    const MatView<T> view = mat(ref);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) set(view.row(r)[c], draw());
    }
    return ref;
  }
  /// As add(), an output: all of it is written (the padding is not).
  template <typename T>
  TensorRef<T> output(std::string name, int64_t rows, int64_t cols, Tolerance tolerance,
                      int64_t pad = 0) {
    const TensorRef<T> ref = add<T>(std::move(name), rows, cols, pad);
    for (int64_t r = 0; r < rows; ++r) allow_writes(ref, r, 0, cols);
    tensors[ref.index].tolerance = tolerance;
    return ref;
  }

  template <typename T>
  T* data(TensorRef<T> ref) {
    return reinterpret_cast<T*>(tensors[ref.index].bytes.data());
  }
  template <typename T>
  MatView<T> mat(TensorRef<T> ref) {
    const Tensor& t = tensors[ref.index];
    return MatView<T>(data(ref), t.rows, t.cols, t.stride);
  }
  template <typename T>
  std::span<T> span(TensorRef<T> ref) {
    return {data(ref), tensors[ref.index].bytes.size() / sizeof(T)};
  }
  template <typename T>
  void allow_writes(TensorRef<T> ref, int64_t row, int64_t first_col, int64_t num_cols) {
    mark_writable(ref.index, row, first_col, num_cols);
  }

  std::vector<Tensor> tensors;

 private:
  static DType dtype_of(bf16) { return DType::kBf16; }
  static DType dtype_of(float) { return DType::kF32; }
  static DType dtype_of(int32_t) { return DType::kI32; }
  static DType dtype_of(uint8_t) { return DType::kU8; }
  static void set(bf16& out, double x) { out = to_bf16(static_cast<float>(x)); }
  static void set(float& out, double x) { out = static_cast<float>(x); }
  static void set(int32_t& out, int64_t x) { out = static_cast<int32_t>(x); }
  static void set(uint8_t& out, int64_t x) { out = static_cast<uint8_t>(x); }
  size_t add_tensor(std::string name, DType dtype, int64_t rows, int64_t cols, int64_t stride);
  void mark_writable(size_t index, int64_t row, int64_t first_col, int64_t num_cols);
};

/// A failure's text, or nothing. Checkers return it, so that a test can ask that one fails.
using Failure = std::optional<std::string>;

/// Every writable value of `got` against `expected`, by the tensors' tolerances.
Failure compare_values(const World& expected, const World& got);
/// Every byte of every tensor.
Failure compare_bits(const World& expected, const World& got);
/// Everything not writable is as it was in `before`.
Failure compare_untouched(const World& before, const World& got);

}  // namespace sluice
