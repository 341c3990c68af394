#pragma once
// Memory for large tables that are read at random places: with 4 KB pages each read costs a walk of the page tables too.

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace sluice {

/// Asks the kernel for huge pages where an allocation fills at least one; smaller ones are ordinary.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t num_bytes = count * sizeof(T);
    if (num_bytes < kHugePage) return static_cast<T*>(::operator new(num_bytes));
    void* memory = ::operator new(num_bytes, std::align_val_t(kHugePage));
    ::madvise(memory, num_bytes, MADV_HUGEPAGE);  // advice: refused, it is slower and nothing else
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    if (count * sizeof(T) < kHugePage) return ::operator delete(memory);
    ::operator delete(memory, std::align_val_t(kHugePage));
  }
  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace sluice
