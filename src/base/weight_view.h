#pragma once
// A linear's weight exactly as the checkpoint stores it.

#include <cstddef>
#include <cstdint>

namespace sluice {

enum class WeightFormat { kBf16, kFp8Block128 };

/// Rows and columns that share one scale of a block-FP8 weight.
inline constexpr int64_t kFp8BlockSize = 128;

/// As a checkpoint or a host backend has it: [num_out, num_in] row-major, nothing repacked.
/// kBf16: bf16 values; `scales` is null.
/// kFp8Block128: e4m3fn bytes; `scales` fp32 [ceil(num_out/128), ceil(num_in/128)], row-major;
///   W[n, k] = e4m3(data[n, k]) * scales[n / 128, k / 128].
///
/// As OpTable::place_weight returns it, data and scales are the backend's own: the same format and shape, in a layout that
/// only its ops can read (ops/cuda/packed.h).
struct WeightView {
  WeightFormat format = WeightFormat::kBf16;
  const void* data = nullptr;
  const float* scales = nullptr;
  int64_t num_out = 0;
  int64_t num_in = 0;

  int64_t scale_cols() const { return (num_in + kFp8BlockSize - 1) / kFp8BlockSize; }
  /// Bytes a full read moves; scales are counted as 2 bytes each, their size in the published
  /// files.
  size_t num_bytes() const {
    const auto values = static_cast<size_t>(num_out) * static_cast<size_t>(num_in);
    if (format == WeightFormat::kBf16) return values * 2;
    const auto scale_rows = static_cast<size_t>((num_out + kFp8BlockSize - 1) / kFp8BlockSize);
    return values + scale_rows * static_cast<size_t>(scale_cols()) * 2;
  }
};

}  // namespace sluice
