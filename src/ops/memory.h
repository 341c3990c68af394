#pragma once
// Where a backend's buffers live, and how the host reaches them.

#include <vector>

#include "base/arena.h"
#include "base/status.h"

namespace sluice {

enum class MemoryKind {
  kPrivate,  // only ops touch it
  kShared,   // the host reads and writes it too, between steps
};

struct MemoryTable {
  /// The host's own memory: nothing has to be copied to be read.
  bool is_host;
  /// Zero-filled. kResourceExhausted names `what` and the size.
  Result<Buffer> (*allocate)(size_t num_bytes, std::string_view what, MemoryKind kind);
  /// From the host's memory to the backend's; `from` may go when it returns.
  void (*upload)(void* to, const void* from, size_t num_bytes);
  /// From the backend's memory to the host's, behind every op that was called before.
  void (*download)(void* to, const void* from, size_t num_bytes);
  /// Inside the backend's memory, in order with its ops.
  void (*copy)(void* to, const void* from, size_t num_bytes);
  void (*clear)(void* to, size_t num_bytes);
};

/// `count` values behind every op that was called before.
template <typename T>
std::vector<T> fetch(const MemoryTable& memory, const T* from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  memory.download(values.data(), from, values.size() * sizeof(T));
  return values;
}

/// Plain memory, for backends that run on the host.
const MemoryTable& host_memory();

}  // namespace sluice
