#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "model/safetensors.h"

namespace sluice {

/// Reads a file's tensors as typed values with checked shapes.
class TensorReader {
 public:
  explicit TensorReader(const SafetensorsFile& file) : file_(file) {}

  bool has(std::string_view name) const { return file_.find(name) != nullptr; }
  /// A size that is kAnySize fits any.
  static constexpr int64_t kAnySize = -1;
  Result<std::vector<int32_t>> int32s(std::string_view name, std::vector<int64_t> shape) const {
    return read<int32_t>(name, Dtype::kI32, shape);
  }
  /// Finite values only.
  Result<std::vector<bf16>> bf16s(std::string_view name, std::vector<int64_t> shape) const;
  /// BF16 or F32, widened; finite values only.
  Result<std::vector<float>> floats(const TensorEntry& entry) const;

 private:
  template <typename T>
  Result<std::vector<T>> read(std::string_view name, Dtype dtype,
                              std::span<const int64_t> shape) const {
    SLUICE_ASSIGN_OR_RETURN(const TensorEntry* entry, checked(name, dtype, shape));
    std::vector<T> values(static_cast<size_t>(entry->num_elements()));
    copy(*entry, values.data());
    return values;
  }
  Result<const TensorEntry*> checked(std::string_view name, Dtype dtype,
                                     std::span<const int64_t> shape) const;
  Status check_finite(std::string_view name, std::span<const float> values) const;
  void copy(const TensorEntry& entry, void* to) const;

  const SafetensorsFile& file_;
};

}  // namespace sluice
