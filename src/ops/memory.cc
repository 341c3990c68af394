#include "ops/memory.h"

#include <cstring>

namespace sluice {
namespace {

Result<Buffer> allocate(size_t num_bytes, std::string_view what, MemoryKind) {
  return Buffer::create(num_bytes, what);
}

void copy(void* to, const void* from, size_t num_bytes) {
  if (num_bytes > 0) std::memcpy(to, from, num_bytes);
}

void clear(void* to, size_t num_bytes) {
  if (num_bytes > 0) std::memset(to, 0, num_bytes);
}

}  // namespace

const MemoryTable& host_memory() {
  static constexpr MemoryTable kTable = {.is_host = true,
                                         .allocate = allocate,
                                         .upload = copy,
                                         .download = copy,
                                         .copy = copy,
                                         .clear = clear};
  return kTable;
}

}  // namespace sluice
