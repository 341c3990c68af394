#include "base/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace sluice {

namespace {

void unmap(std::byte* data, size_t num_bytes) {
  ::munmap(data, num_bytes);
}

}  // namespace

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      release_(other.release_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(release_, other.release_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) release_(data_, size_);
}

Buffer Buffer::adopt(std::byte* data, size_t num_bytes, Release release) {
  Buffer buffer;
  buffer.data_ = data;
  buffer.size_ = num_bytes;
  buffer.release_ = release;
  return buffer;
}

Result<Buffer> Buffer::create(size_t num_bytes, std::string_view what) {
  Buffer buffer;
  if (num_bytes == 0) return buffer;
  void* data =
      ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return resource_exhausted("{}: the system refused {} MiB of memory", what, num_bytes >> 20);
  }
  // Large pages spare the TLB where the kernel grants them; a refusal changes nothing.
  ::madvise(data, num_bytes, MADV_HUGEPAGE);
  return adopt(static_cast<std::byte*>(data), num_bytes, unmap);
}

Result<Arena> Arena::create(size_t num_bytes, std::string_view what) {
  SLUICE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::create(num_bytes, what));
  return Arena(std::move(buffer));
}

std::byte* Arena::take_bytes(size_t num_bytes) {
  const size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  SLUICE_CHECK_LE(used_ + rounded, buffer_.size());
  std::byte* data = buffer_.data() + used_;
  used_ += rounded;
  peak_ = std::max(peak_, used_);
  return data;
}

}  // namespace sluice
