#pragma once
// One directory tree that no path can leave, whatever links it holds and whoever renames in it.

#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/file.h"
#include "base/status.h"

namespace sluice {

enum class EntryKind { kFile, kDirectory, kOther };

/// Paths are resolved by the kernel beneath the root's descriptor (openat2) or, where it cannot, by
/// our own walk that opens one component at a time, follows links itself and never opens "..". In
/// both a component swapped for a link in between leads to an error, not outside. An absolute link
/// leaves the root even when it points back into it.
///
/// Every Status says in its code what went wrong: kInvalidArgument the path leaves the root,
/// kNotFound nothing there (also: link loops, names too long, a file used as a directory),
/// kUnsupported it is there but of the wrong kind, kIo the system refused.
class ConfinedDir {
 public:
  enum class Resolver { kAuto, kWalk };

  /// kNotFound or kIo when `root` is no directory that can be opened.
  static Result<ConfinedDir> open(const Path& root, Resolver resolver = Resolver::kAuto);

  /// The root, absolute and without links.
  const Path& root() const { return root_; }

  /// `path` relative to the root, without ".", ".." and empty parts ("." is the root). ".." is taken
  /// lexically. Absolute paths are fine when they start with the root.
  Result<std::string> relative(std::string_view path) const;

  // Below, `relative_path` is what relative() gave.

  Result<EntryKind> kind(const std::string& relative_path) const;
  /// A regular file, for reading. FIFOs, sockets and devices are never opened: kUnsupported.
  Result<UniqueFd> open_file(const std::string& relative_path) const;
  /// A directory, for reading its entries or as the base of *at() calls.
  Result<UniqueFd> open_dir(const std::string& relative_path) const;
  /// Replaces or creates a regular file in an existing directory, as a whole or not at all. A link
  /// in its place is replaced, not followed.
  Status write_file(const std::string& relative_path, std::string_view content) const;

 private:
  Result<UniqueFd> open_beneath(const std::string& relative_path, int flags) const;

  Path root_;
  std::string root_as_given_;
  UniqueFd fd_;
  Resolver resolver_ = Resolver::kAuto;
};

}  // namespace sluice
