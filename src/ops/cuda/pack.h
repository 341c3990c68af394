#pragma once
// Brings host memory to the device: weights into the layout of packed.h, all else as it is. Through two pinned buffers,
// so that the host fills one while the device reads the other.

#include <cstddef>

#include "base/status.h"
#include "base/weight_view.h"

namespace sluice::cuda {

/// Bytes that pack_weight may write at `to`.
size_t packed_bytes(const WeightView& from);

/// Takes the buffers now, if they are not taken. kResourceExhausted says how many bytes were refused.
Status open_staging();

/// `from` lies in host memory, `to` in the device's. In the view returned, data are packed blocks, and scales are FP8's scales
/// or BF16's row factors (packed.h). `from` may go when it returns.
/// Pre: open_staging() is ok.
WeightView pack_weight(const WeightView& from, std::byte* to);

/// Plain bytes, by the same way. `from` may go when it returns. False: the buffers are not to be had, nothing was done.
bool copy_to_device(void* to, const void* from, size_t num_bytes);

/// Gives the pinned buffers back.
void release_staging();

}  // namespace sluice::cuda
