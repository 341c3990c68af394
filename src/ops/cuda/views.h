#pragma once
// The ops' views as the kernels' launch contracts take them.

#include "base/view.h"
#include "base/weight_view.h"
#include "ops/cuda/launch.h"

namespace sluice::cuda {

template <typename T>
Rows<T> rows_of(const MatView<T>& view) {
  return {view.data, view.num_rows, view.num_cols, view.stride};
}

template <typename T>
Rows<const T> const_rows_of(const MatView<T>& view) {
  return {view.data, view.num_rows, view.num_cols, view.stride};
}

/// Of a view that pack_weight made.
inline PackedWeight weight_of(const WeightView& w) {
  const bool is_fp8 = w.format == WeightFormat::kFp8Block128;
  return {static_cast<const uint8_t*>(w.data), is_fp8 ? w.scales : nullptr,
          is_fp8 ? nullptr : w.scales, static_cast<int>(w.num_out), static_cast<int>(w.num_in)};
}

}  // namespace sluice::cuda
