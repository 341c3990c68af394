#include "model/values.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/bf16.h"

namespace sluice {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, size_t idx) {
  T value;
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

bool is_bad(uint16_t bf16_bits) {
  return (bf16_bits & 0x7f80u) == 0x7f80u;
}
bool is_bad(uint8_t e4m3_bits) {
  return e4m3_is_nan(e4m3_bits);
}

// No early exit inside a block: a plain OR over the block is what the compiler turns into vectors.
template <typename T>
bool any_bad(const T* values, int64_t count) {
  T bad = 0;
  for (int64_t i = 0; i < count; ++i) bad = static_cast<T>(bad | (is_bad(values[i]) ? 1 : 0));
  return bad != 0;
}

constexpr int64_t kBlock = int64_t{1} << 20;

template <typename T>
int64_t find_bad(std::span<const std::byte> bytes, ThreadPool& threads) {
  const T* values = reinterpret_cast<const T*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(T));
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  std::atomic<int64_t> first_block{num_blocks};
  threads.parallel_for(num_blocks, [&](int64_t block, int /*worker*/) {
    const int64_t begin = block * kBlock;
    if (!any_bad(values + begin, std::min(kBlock, count - begin))) return;
    int64_t seen = first_block.load();
    while (block < seen && !first_block.compare_exchange_weak(seen, block)) {
    }
  });
  if (first_block.load() == num_blocks) return -1;
  int64_t idx = first_block.load() * kBlock;
  while (!is_bad(values[idx])) ++idx;
  return idx;
}

}  // namespace

void widen(Dtype dtype, std::span<const std::byte> bytes, std::span<float> out) {
  SLUICE_CHECK_EQ(bytes.size(), out.size() * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (dtype) {
      case Dtype::kBf16:
        out[i] = to_float(load<bf16>(bytes, i));
        break;
      case Dtype::kF16:
        out[i] = f16_to_float(load<uint16_t>(bytes, i));
        break;
      case Dtype::kF32:
        out[i] = load<float>(bytes, i);
        break;
      default:
        SLUICE_CHECK(false);
    }
  }
}

int64_t find_non_finite(Dtype dtype, std::span<const std::byte> bytes, ThreadPool& threads) {
  if (dtype == Dtype::kF8E4M3) return find_bad<uint8_t>(bytes, threads);
  SLUICE_CHECK(dtype == Dtype::kBf16);
  return find_bad<uint16_t>(bytes, threads);
}

}  // namespace sluice
