#include <algorithm>
#include <vector>

#include "apps/tools/dir_entries.h"
#include "apps/tools/file_tools.h"
#include "apps/tools/text.h"
#include "chat/text.h"

namespace sluice {
namespace {

constexpr size_t kHitsMax = 15;
constexpr size_t kHitBytesMax = 100;
constexpr int kDepthMax = 64;

bool is_skipped(std::string_view directory_name) {
  return directory_name == ".git" || directory_name == "build";
}

/// Walks files in bytewise order of their whole paths, which is depth first with each directory
/// named "name/" among its neighbours.
class Searcher {
 public:
  Searcher(const ConfinedDir& dir, std::string_view pattern) : dir_(dir), pattern_(pattern) {}

  void search_dir(const std::string& relative_path, int depth) {
    Result<UniqueFd> fd = dir_.open_dir(relative_path);
    if (!fd.ok()) return;
    Result<std::vector<DirEntry>> entries = read_entries(std::move(fd).value(), kDirEntriesMax);
    if (!entries.ok() || depth > kDepthMax) {
      stopped_ = true;
      return;
    }
    for (DirEntry& entry : *entries) {
      if (entry.kind == EntryKind::kDirectory) entry.name += '/';
    }
    std::ranges::sort(*entries, {}, &DirEntry::name);
    const std::string prefix = relative_path == "." ? "" : relative_path + "/";
    for (DirEntry& entry : *entries) {
      if (stopped_) return;
      if (entry.kind == EntryKind::kFile) search_file(prefix + entry.name);
      if (entry.kind != EntryKind::kDirectory) continue;
      entry.name.pop_back();
      if (!is_skipped(entry.name)) search_dir(prefix + entry.name, depth + 1);
    }
  }

  void search_file(const std::string& relative_path) {
    if (num_files_ == kSearchFilesMax || num_bytes_ > kSearchBytesMax) {
      stopped_ = true;
      return;
    }
    ++num_files_;
    const Result<UniqueFd> fd = dir_.open_file(relative_path);
    if (!fd.ok()) return;
    const Result<std::string> content = read_all(*fd, kSearchFileBytesMax);
    if (!content.ok()) return;
    num_bytes_ += content->size();
    if (content->find(pattern_) == std::string::npos || !is_text(*content)) return;
    search_lines(printable_line(relative_path), *content);
  }

  std::string result() const {
    std::vector<std::string> lines = hits_;
    if (num_hits_ > hits_.size()) {
      lines.push_back(fmt::format("... {} more matches", num_hits_ - hits_.size()));
    }
    if (lines.empty()) lines.push_back("no matches");
    if (stopped_) lines.push_back("... search stopped: too many files");
    return fmt::format("{}", fmt::join(lines, "\n"));
  }

 private:
  void search_lines(const std::string& shown_path, std::string_view text) {
    for (int64_t line_number = 1; !text.empty(); ++line_number) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.find(pattern_) == line.npos) continue;
      if (++num_hits_ > kHitsMax) continue;
      hits_.push_back(fmt::format("{}:{}: {}", shown_path, line_number,
                                  cut_text(chat::strip(line), kHitBytesMax)));
    }
  }

  const ConfinedDir& dir_;
  std::string_view pattern_;
  std::vector<std::string> hits_;
  size_t num_hits_ = 0;
  int64_t num_files_ = 0;
  size_t num_bytes_ = 0;
  bool stopped_ = false;
};

/// A path in or at a directory that a search leaves out.
bool is_in_skipped(std::string_view relative_path, EntryKind kind) {
  while (!relative_path.empty()) {
    const size_t slash = relative_path.find('/');
    const bool is_directory = slash != relative_path.npos || kind == EntryKind::kDirectory;
    if (is_directory && is_skipped(relative_path.substr(0, slash))) return true;
    relative_path.remove_prefix(slash == relative_path.npos ? relative_path.size() : slash + 1);
  }
  return false;
}

}  // namespace

Result<std::string> search(const ConfinedDir& dir, const std::string& pattern,
                           const std::string& path) {
  const auto fail = [&](const Status& status) -> Status {
    if (status.code() == StatusCode::kNotFound) return not_found("no such path: {}", path);
    if (status.code() == StatusCode::kIo) return io_error("cannot open {}", path);
    return invalid_argument("path leaves the root: {}", path);
  };
  const Result<std::string> relative_path = dir.relative(path);
  if (!relative_path.ok()) return fail(relative_path.status());
  const Result<EntryKind> kind = dir.kind(*relative_path);
  if (!kind.ok()) return fail(kind.status());
  Searcher searcher(dir, pattern);
  if (is_in_skipped(*relative_path, *kind)) return searcher.result();
  if (*kind == EntryKind::kDirectory) {
    searcher.search_dir(*relative_path, 0);
  } else {
    searcher.search_file(*relative_path);
  }
  return searcher.result();
}

}  // namespace sluice
