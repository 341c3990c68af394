// MemoryTable's copy and clear, which are kernels here.
#include <gtest/gtest.h>

#include <numeric>

#include "ops/cuda/cuda_ops.h"

namespace sluice {
namespace {

TEST(GpuMemory, CopyAndClearMoveWhatTheyAreTold) {
  const MemoryTable& memory = *(*cuda_ops())->memory;
  constexpr size_t kBytes = 100'000;
  const Buffer from = memory.allocate(kBytes, "from", MemoryKind::kPrivate).value();
  const Buffer to = memory.allocate(kBytes, "to", MemoryKind::kPrivate).value();
  std::vector<uint8_t> values(kBytes);
  std::iota(values.begin(), values.end(), uint8_t{1});
  memory.upload(from.data(), values.data(), kBytes);
  for (const size_t first : {0, 1, 16, 48, 77}) {
    for (const size_t count : {0, 1, 15, 16, 4096, 99'000}) {
      memory.upload(to.data(), std::vector<uint8_t>(kBytes, 0xee).data(), kBytes);
      memory.copy(to.data() + first, from.data() + first, count);
      memory.clear(to.data() + first, count / 2);
      const std::vector<std::byte> got = fetch(memory, to.data(), kBytes);
      for (size_t i = 0; i < kBytes; ++i) {
        const bool is_inside = i >= first && i < first + count;
        const int wanted = !is_inside ? 0xee : i < first + count / 2 ? 0 : values[i];
        ASSERT_EQ(static_cast<int>(got[i]), wanted) << first << " " << count << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice
