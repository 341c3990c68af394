#pragma once
// Owns what a loaded model cannot view in place: widened small tensors and the rare misaligned big one.

#include <span>
#include <vector>

#include "base/arena.h"
#include "base/status.h"

namespace sluice {

class TensorMemory {
 public:
  /// 64-byte aligned, uninitialised, stable for the life of this object (also across a move).
  Result<std::span<float>> floats(size_t count);
  Result<std::span<std::byte>> bytes(size_t count);

 private:
  std::vector<Arena> chunks_;
};

}  // namespace sluice
