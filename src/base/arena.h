#pragma once
// A bump allocator of fixed capacity: what a step needs is taken at start-up, and a step allocates
// nothing.

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace sluice {

/// Memory with one owner. What create() gives is page-aligned and straight from the kernel; pages that
/// are never touched cost nothing.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// Zero-filled. Fails with kResourceExhausted, naming `what` and the size.
  static Result<Buffer> create(size_t num_bytes, std::string_view what);
  /// Memory from elsewhere, a device's for example; `release` gives it back.
  using Release = void (*)(std::byte* data, size_t num_bytes);
  static Buffer adopt(std::byte* data, size_t num_bytes, Release release);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  Release release_ = nullptr;
};

class Arena {
 public:
  Arena() = default;
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)) {}
  static Result<Arena> create(size_t num_bytes, std::string_view what);

  static constexpr size_t kAlignment = 64;

  /// 64-byte aligned, uninitialised. Running out is a bug of the sizing code, not of the input.
  template <typename T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(static_cast<size_t>(count) * sizeof(T)));
  }
  void reset() { used_ = 0; }
  /// What was taken stays where it is; the arena is empty afterwards.
  Buffer release() { return std::move(buffer_); }
  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.size(); }

  /// Gives back everything taken during its life.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), used_(arena.used_) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { arena_.used_ = used_; }

   private:
    Arena& arena_;
    size_t used_;
  };

 private:
  std::byte* take_bytes(size_t num_bytes);

  Buffer buffer_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace sluice
