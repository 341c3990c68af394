#include "verify/tensor_reader.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"

namespace sluice {

Result<std::vector<float>> TensorReader::floats(const TensorEntry& entry) const {
  std::vector<float> values(static_cast<size_t>(entry.num_elements()));
  if (entry.dtype == Dtype::kF32) {
    copy(entry, values.data());
    SLUICE_RETURN_IF_ERROR(check_finite(entry.name, values));
    return values;
  }
  if (entry.dtype != Dtype::kBf16) {
    return data_loss("{}: tensor {} is {}; expected BF16 or F32", file_.name(), entry.name,
                     dtype_name(entry.dtype));
  }
  std::vector<bf16> narrow(values.size());
  copy(entry, narrow.data());
  std::transform(narrow.begin(), narrow.end(), values.begin(), to_float);
  SLUICE_RETURN_IF_ERROR(check_finite(entry.name, values));
  return values;
}

Result<std::vector<bf16>> TensorReader::bf16s(std::string_view name,
                                              std::vector<int64_t> shape) const {
  SLUICE_ASSIGN_OR_RETURN(std::vector<bf16> values, read<bf16>(name, Dtype::kBf16, shape));
  std::vector<float> wide(values.size());
  std::transform(values.begin(), values.end(), wide.begin(), to_float);
  SLUICE_RETURN_IF_ERROR(check_finite(name, wide));
  return values;
}

Status TensorReader::check_finite(std::string_view name, std::span<const float> values) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return data_loss("{}: tensor {} holds {} at element {}; expected finite values", file_.name(),
                     name, values[i], i);
  }
  return Status();
}

Result<const TensorEntry*> TensorReader::checked(std::string_view name, Dtype dtype,
                                                 std::span<const int64_t> shape) const {
  const TensorEntry* entry = file_.find(name);
  if (entry == nullptr) return data_loss("{}: tensor {} is missing", file_.name(), name);
  bool fits = entry->dtype == dtype && entry->shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] == kAnySize || shape[i] == entry->shape[i];
  }
  if (!fits) {
    return data_loss("{}: tensor {} is {} {}; expected {} {}", file_.name(), name,
                     dtype_name(entry->dtype), shape_text(entry->shape), dtype_name(dtype),
                     shape_text(shape));
  }
  return entry;
}

void TensorReader::copy(const TensorEntry& entry, void* to) const {
  const std::span<const std::byte> bytes = file_.bytes(entry);
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
}

}  // namespace sluice
