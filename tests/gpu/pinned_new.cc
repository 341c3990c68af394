// This program's operator new and delete: memory that the GPU reads and writes too, so that ops run on the tests' own vectors.
//
// Pieces of powers of two from one pinned arena; freed ones wait in a list for their size. Where there is no GPU, plain memory.
#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr size_t kArenaBytes = size_t{2} << 30;
constexpr size_t kHeaderBytes = 64;  // keeps what follows aligned
constexpr int kPlain = -1;           // a header's class: not from the arena

struct Header {
  int size_class;
  Header* next_free;
};
static_assert(sizeof(Header) <= kHeaderBytes);

/// Inside the driver's own start-up the arena is not there yet.
thread_local bool is_opening = false;

class PinnedArena {
 public:
  PinnedArena() {
    is_opening = true;
    void* data = nullptr;
    if (cudaHostAlloc(&data, kArenaBytes, cudaHostAllocMapped | cudaHostAllocPortable) ==
        cudaSuccess) {
      next_ = static_cast<char*>(data);
      end_ = next_ + kArenaBytes;
    }
    is_opening = false;
  }

  Header* take(size_t num_bytes) {
    const auto size_class = static_cast<int>(std::bit_width(num_bytes - 1));
    const std::lock_guard lock(mutex_);
    Header*& free = free_[static_cast<size_t>(size_class)];
    if (free != nullptr) {
      Header* piece = free;
      free = piece->next_free;
      return piece;
    }
    const size_t size = size_t{1} << size_class;
    if (static_cast<size_t>(end_ - next_) < size) return nullptr;
    auto* piece = reinterpret_cast<Header*>(next_);
    next_ += size;
    piece->size_class = size_class;
    return piece;
  }

  void give_back(Header* piece) {
    const std::lock_guard lock(mutex_);
    Header*& free = free_[static_cast<size_t>(piece->size_class)];
    piece->next_free = free;
    free = piece;
  }

 private:
  std::mutex mutex_;
  char* next_ = nullptr;
  char* end_ = nullptr;
  std::array<Header*, 64> free_ = {};
};

PinnedArena& arena() {
  alignas(PinnedArena) static char place[sizeof(PinnedArena)];
  static auto* made = new (place) PinnedArena;  // never destroyed: frees come until the very end
  return *made;
}

Header* take(size_t num_bytes) {
  Header* piece = is_opening ? nullptr : arena().take(num_bytes);
  if (piece != nullptr) return piece;
  piece = static_cast<Header*>(std::aligned_alloc(
      kHeaderBytes, (num_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes));
  if (piece == nullptr) std::abort();
  piece->size_class = kPlain;
  return piece;
}

}  // namespace

void* operator new(size_t num_bytes) {
  return reinterpret_cast<char*>(take(num_bytes + kHeaderBytes)) + kHeaderBytes;
}

void operator delete(void* data) noexcept {
  if (data == nullptr) return;
  auto* piece = reinterpret_cast<Header*>(static_cast<char*>(data) - kHeaderBytes);
  if (piece->size_class == kPlain) {
    std::free(piece);
  } else {
    arena().give_back(piece);
  }
}

void operator delete(void* data, size_t) noexcept {
  operator delete(data);
}
