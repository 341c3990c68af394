#include "model/tensor_memory.h"

#include <algorithm>

namespace sluice {

// The small tensors of the 27B, scales included, take some 12 MB.
constexpr size_t kChunkBytes = size_t{4} << 20;

Result<std::span<std::byte>> TensorMemory::bytes(size_t count) {
  const size_t rounded = (count + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  if (chunks_.empty() || chunks_.back().capacity() - chunks_.back().used() < rounded) {
    SLUICE_ASSIGN_OR_RETURN(Arena chunk,
                            Arena::create(std::max(rounded, kChunkBytes), "small tensors"));
    chunks_.push_back(std::move(chunk));
  }
  return std::span(chunks_.back().take<std::byte>(static_cast<int64_t>(rounded)), count);
}

Result<std::span<float>> TensorMemory::floats(size_t count) {
  SLUICE_ASSIGN_OR_RETURN(const std::span<std::byte> raw, bytes(count * sizeof(float)));
  return std::span(reinterpret_cast<float*>(raw.data()), count);
}

}  // namespace sluice
