#include "apps/tools/confined_dir.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <deque>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace sluice {
namespace {

constexpr int kLinksMax = 40;       // as the kernel
constexpr int kRaceRetriesMax = 8;  // openat2 asks for a retry when the tree changes under it
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

Status lookup_status(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return not_found("no such path");
    case EXDEV:
    case EAGAIN:
      return invalid_argument("path leaves the root");
    default:
      return io_error("{}", std::strerror(error));
  }
}

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

Result<EntryKind> kind_of(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return lookup_status(errno);
  if (S_ISREG(info.st_mode)) return EntryKind::kFile;
  return S_ISDIR(info.st_mode) ? EntryKind::kDirectory : EntryKind::kOther;
}

/// "" when `fd` is no link.
Result<std::string> link_target(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return lookup_status(errno);
  if (!S_ISLNK(info.st_mode)) return std::string();
  char target[PATH_MAX];
  const ssize_t size = ::readlinkat(fd, "", target, sizeof(target));
  if (size <= 0) return lookup_status(size < 0 ? errno : ENOENT);
  return std::string(target, static_cast<size_t>(size));
}

/// Our own resolution, for kernels (or sandboxes) without openat2. Each component is opened in the
/// directory opened before it, so a rename cannot bend the path; ".." in a link pops our own stack.
class Walk {
 public:
  Walk(int root, std::string_view path) : root_(root) {
    for (const std::string_view part : split_path(path)) pending_.emplace_back(part);
  }

  Result<UniqueFd> open(int flags) {
    while (!pending_.empty()) {
      const std::string name = std::move(pending_.front());
      pending_.pop_front();
      if (name == ".") continue;
      if (name == "..") {
        if (dirs_.empty()) return lookup_status(EXDEV);
        dirs_.pop_back();
        continue;
      }
      UniqueFd fd(::openat(here(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      if (!fd.is_open()) return lookup_status(errno);
      SLUICE_ASSIGN_OR_RETURN(const std::string target, link_target(fd.get()));
      if (!target.empty()) {
        SLUICE_RETURN_IF_ERROR(follow(target));
      } else if (pending_.empty()) {
        return reopen(std::move(fd), name, flags);
      } else {
        dirs_.push_back(std::move(fd));
      }
    }
    UniqueFd fd(::openat(here(), ".", flags | O_CLOEXEC));
    if (!fd.is_open()) return lookup_status(errno);
    return fd;
  }

 private:
  int here() const { return dirs_.empty() ? root_ : dirs_.back().get(); }

  Status follow(const std::string& target) {
    if (++num_links_ > kLinksMax) return lookup_status(ELOOP);
    if (target.front() == '/') return lookup_status(EXDEV);
    const std::vector<std::string_view> parts = split_path(target);
    pending_.insert(pending_.begin(), parts.begin(), parts.end());
    return Status();
  }

  Result<UniqueFd> reopen(UniqueFd found, const std::string& name, int flags) const {
    if ((flags & O_PATH) != 0) return found;
    UniqueFd fd(::openat(here(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.is_open()) return lookup_status(errno);
    return fd;
  }

  int root_;
  std::deque<std::string> pending_;
  std::vector<UniqueFd> dirs_;
  int num_links_ = 0;
};

int openat2_beneath(int root, const char* path, int flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  for (int i = 0;; ++i) {
    const long fd = ::syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd >= 0 || errno != EAGAIN || i == kRaceRetriesMax) return static_cast<int>(fd);
  }
}

/// `path` without `prefix`; nothing when it is elsewhere.
std::optional<std::string_view> below(std::string_view path, std::string_view prefix) {
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (!path.starts_with(prefix)) return std::nullopt;
  path.remove_prefix(prefix.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return path;
}

/// A replaced file keeps its permissions.
void copy_mode(int dir, const std::string& name, int fd) {
  struct stat info {};
  if (::fstatat(dir, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (S_ISREG(info.st_mode)) ::fchmod(fd, info.st_mode & 0777);
}

}  // namespace

Result<ConfinedDir> ConfinedDir::open(const Path& root, Resolver resolver) {
  std::error_code error;
  const Path canonical = std::filesystem::canonical(root, error);
  if (error) return not_found("{}: no such directory", root.string());
  UniqueFd fd(::open(canonical.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open())
    return io_error("{}: cannot open directory: {}", root.string(), std::strerror(errno));
  ConfinedDir dir;
  dir.root_ = canonical;
  dir.root_as_given_ = std::filesystem::absolute(root, error).lexically_normal().string();
  dir.fd_ = std::move(fd);
  dir.resolver_ = resolver;
  return dir;
}

Result<std::string> ConfinedDir::relative(std::string_view path) const {
  if (path.size() >= PATH_MAX || path.find('\0') != path.npos) return lookup_status(ENOENT);
  if (path.starts_with('/')) {
    std::optional<std::string_view> rest = below(path, root_.native());
    if (!rest) rest = below(path, root_as_given_);
    if (!rest) return lookup_status(EXDEV);
    path = *rest;
  }
  std::vector<std::string_view> parts;
  for (const std::string_view part : split_path(path)) {
    if (part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (parts.empty()) {
      return lookup_status(EXDEV);
    } else {
      parts.pop_back();
    }
  }
  if (parts.empty()) return std::string(".");
  return fmt::format("{}", fmt::join(parts, "/"));
}

Result<UniqueFd> ConfinedDir::open_beneath(const std::string& relative_path, int flags) const {
  if (resolver_ == Resolver::kAuto) {
    UniqueFd fd(openat2_beneath(fd_.get(), relative_path.c_str(), flags | O_CLOEXEC));
    if (fd.is_open()) return fd;
    // A sandbox that does not know the call may answer EPERM for it.
    if (errno != ENOSYS && errno != EPERM) return lookup_status(errno);
  }
  return Walk(fd_.get(), relative_path).open(flags);
}

Result<EntryKind> ConfinedDir::kind(const std::string& relative_path) const {
  SLUICE_ASSIGN_OR_RETURN(const UniqueFd fd, open_beneath(relative_path, O_PATH));
  return kind_of(fd.get());
}

Result<UniqueFd> ConfinedDir::open_file(const std::string& relative_path) const {
  // Looked at first without opening: opening a device can act on it.
  SLUICE_ASSIGN_OR_RETURN(const EntryKind expected, kind(relative_path));
  if (expected != EntryKind::kFile) return unsupported("not a regular file");
  SLUICE_ASSIGN_OR_RETURN(UniqueFd fd, open_beneath(relative_path, kReadFlags));
  SLUICE_ASSIGN_OR_RETURN(const EntryKind found, kind_of(fd.get()));
  if (found != EntryKind::kFile) return unsupported("not a regular file");
  return fd;
}

Result<UniqueFd> ConfinedDir::open_dir(const std::string& relative_path) const {
  SLUICE_ASSIGN_OR_RETURN(const EntryKind found, kind(relative_path));
  if (found != EntryKind::kDirectory) return unsupported("not a directory");
  return open_beneath(relative_path, kReadFlags | O_DIRECTORY);
}

Status ConfinedDir::write_file(const std::string& relative_path, std::string_view content) const {
  const size_t slash = relative_path.rfind('/');
  const std::string parent = slash == relative_path.npos ? "." : relative_path.substr(0, slash);
  const std::string name = relative_path.substr(slash == relative_path.npos ? 0 : slash + 1);
  SLUICE_ASSIGN_OR_RETURN(const UniqueFd dir, open_dir(parent));
  const std::string temporary = fmt::format(".sluice-{}.part", ::getpid());
  UniqueFd fd(::openat(dir.get(), temporary.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd.is_open()) return lookup_status(errno);
  copy_mode(dir.get(), name, fd.get());
  Status status = write_all(fd.get(), content);
  if (status.ok() && ::renameat(dir.get(), temporary.c_str(), dir.get(), name.c_str()) != 0) {
    status = lookup_status(errno);
  }
  if (!status.ok()) ::unlinkat(dir.get(), temporary.c_str(), 0);
  return status;
}

}  // namespace sluice
