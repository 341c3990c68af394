#include "bench/kernels/stream.h"

#include <atomic>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace sluice::bench {
namespace {

constexpr size_t kShare = size_t{1} << 20;
constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;

/// Reads every byte, `pages` pages at a time, a line of each in turn; the sum keeps the compiler from leaving any out.
template <size_t kPages>
uint64_t sum_bytes(const std::byte* data, size_t size) {
  uint64_t sums[8] = {};
  for (size_t block = 0; block + kPages * kPage <= size; block += kPages * kPage) {
    for (size_t line = 0; line < kPage; line += kLine) {
      for (size_t page = 0; page < kPages; ++page) {
        uint64_t words[8];
        std::memcpy(words, data + block + page * kPage + line, kLine);
        for (int j = 0; j < 8; ++j) sums[j] += words[j];
      }
    }
  }
  uint64_t sum = 0;
  for (const uint64_t s : sums) sum += s;
  return sum;
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void read_all(ThreadPool& pool, std::span<const std::byte> bytes, ReadPattern pattern) {
  const auto num_shares = static_cast<int64_t>(bytes.size() / kShare);
  std::atomic<uint64_t> sink{0};
  pool.parallel_for(num_shares, [&](int64_t share, int) {
    const std::byte* data = bytes.data() + static_cast<size_t>(share) * kShare;
    sink += pattern == ReadPattern::kSequential ? sum_bytes<1>(data, kShare)
                                                : sum_bytes<16>(data, kShare);
  });
  SLUICE_CHECK_NE(sink.load(), uint64_t{1});  // uses the sum
}

}  // namespace sluice::bench
