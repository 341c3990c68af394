#pragma once
// Files: whole reads with a limit, and read-only memory maps.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"

namespace sluice {

using Path = std::filesystem::path;

/// The whole file; kResourceExhausted when it is larger than `max_bytes`, kNotFound when it is not
/// there.
Result<std::string> read_file(const Path& path, size_t max_bytes);
/// Writes to a temporary neighbour and renames, so that a reader never sees half a file.
Status write_file_atomic(const Path& path, std::string_view content);

/// A read-only, shared map of a whole file. An empty file maps to an empty span.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  static Result<MappedFile> open(const Path& path);
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sluice
