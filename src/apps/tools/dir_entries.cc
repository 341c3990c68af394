#include "apps/tools/dir_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace sluice {
namespace {

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};

/// File systems that do not tell the type in the entry are asked for it.
unsigned char type_of(int dir, const struct dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type;
  struct stat info {};
  if (::fstatat(dir, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) return DT_UNKNOWN;
  return static_cast<unsigned char>(IFTODT(info.st_mode));
}

DirEntry make_entry(int dir, const struct dirent& entry) {
  const unsigned char type = type_of(dir, entry);
  const EntryKind kind = type == DT_REG   ? EntryKind::kFile
                         : type == DT_DIR ? EntryKind::kDirectory
                                          : EntryKind::kOther;
  return DirEntry{entry.d_name, kind, type == DT_LNK};
}

}  // namespace

Result<std::vector<DirEntry>> read_entries(UniqueFd dir, int64_t num_entries_max) {
  const std::unique_ptr<DIR, CloseDir> stream(::fdopendir(dir.get()));
  if (stream == nullptr) return io_error("{}", std::strerror(errno));
  const int fd = dir.release();  // the stream owns it now
  std::vector<DirEntry> entries;
  while (const struct dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (static_cast<int64_t>(entries.size()) == num_entries_max) {
      return resource_exhausted("over {} entries", num_entries_max);
    }
    entries.push_back(make_entry(fd, *entry));
  }
  return entries;
}

}  // namespace sluice
