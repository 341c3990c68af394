#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"

namespace sluice {
namespace {

Status errno_status(const Path& path, const char* what) {
  const int error = errno;
  if (error == ENOENT) return not_found("{}: no such file", path.string());
  return io_error("{}: cannot {}: {}", path.string(), what, std::strerror(error));
}

Result<size_t> regular_file_size(const UniqueFd& fd, const Path& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return errno_status(path, "stat");
  if (!S_ISREG(info.st_mode)) return io_error("{}: not a regular file", path.string());
  return static_cast<size_t>(info.st_size);
}

}  // namespace

Result<std::string> read_file(const Path& path, size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return errno_status(path, "open");
  SLUICE_ASSIGN_OR_RETURN(const size_t size, regular_file_size(fd, path));
  if (size > max_bytes) {
    return resource_exhausted("{}: {} bytes, the limit is {}", path.string(), size, max_bytes);
  }
  std::string content(size, '\0');
  size_t used = 0;
  while (used < size) {
    const ssize_t n = ::read(fd.get(), content.data() + used, size - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status(path, "read");
    if (n == 0) break;  // the file shrank while it was read
    used += static_cast<size_t>(n);
  }
  content.resize(used);
  return content;
}

Status write_file_atomic(const Path& path, std::string_view content) {
  Path temporary = path;
  temporary += ".part" + std::to_string(::getpid());
  {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return errno_status(temporary, "create");
    if (const Status status = write_all(fd.get(), content); !status.ok()) {
      ::unlink(temporary.c_str());
      return status.with_context(temporary.string() + ": cannot write");
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    Status status = errno_status(path, "rename into place");
    ::unlink(temporary.c_str());
    return status;
  }
  return Status();
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<MappedFile> MappedFile::open(const Path& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return errno_status(path, "open");
  SLUICE_ASSIGN_OR_RETURN(const size_t size, regular_file_size(fd, path));
  MappedFile file;
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return errno_status(path, "map");
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

}  // namespace sluice
