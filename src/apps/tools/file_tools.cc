#include "apps/tools/file_tools.h"

#include <algorithm>
#include <vector>

#include "apps/tools/dir_entries.h"
#include "apps/tools/text.h"

namespace sluice {
namespace {

constexpr size_t kListEntriesMax = 30;
constexpr size_t kReadLinesMax = 40;
constexpr size_t kReadBytesMax = 2000;

/// What the model is told when a path does not lead to what it wants; `absent` is the tool's word
/// for "not there".
Status path_status(const Status& status, std::string_view absent, std::string_view wrong_kind,
                   const std::string& path) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return invalid_argument("path leaves the root: {}", path);
    case StatusCode::kNotFound:
      return not_found("{}: {}", absent, path);
    case StatusCode::kUnsupported:
      return unsupported("{}: {}", wrong_kind, path);
    case StatusCode::kResourceExhausted:
      return resource_exhausted("too large: {}", path);
    default:
      return io_error("cannot open {}: {}", path, status.message());
  }
}

/// A link counts as a directory when it leads to one inside the root.
bool shows_as_directory(const ConfinedDir& dir, const std::string& relative_path,
                        const DirEntry& entry) {
  if (!entry.is_link) return entry.kind == EntryKind::kDirectory;
  const Result<EntryKind> kind = dir.kind(relative_path + "/" + entry.name);
  return kind.ok() && *kind == EntryKind::kDirectory;
}

/// Lines without their ends; a last line end starts no further line.
std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// The file's text, with the tool's errors.
Result<std::string> load_text(const ConfinedDir& dir, const std::string& path) {
  const auto fail = [&](const Status& status) {
    return path_status(status, "no such file", "not a text file", path);
  };
  const Result<std::string> relative_path = dir.relative(path);
  if (!relative_path.ok()) return fail(relative_path.status());
  const Result<EntryKind> kind = dir.kind(*relative_path);
  if (!kind.ok()) return fail(kind.status());
  if (*kind == EntryKind::kDirectory) return unsupported("is a directory: {}", path);
  const Result<UniqueFd> fd = dir.open_file(*relative_path);
  if (!fd.ok()) return fail(fd.status());
  Result<std::string> content = read_all(*fd, kToolFileBytesMax);
  if (!content.ok()) return fail(content.status());
  if (!is_text(*content)) return unsupported("not a text file: {}", path);
  return content;
}

/// The lines that fit one result.
std::vector<std::string> window(const std::vector<std::string_view>& lines, size_t first) {
  std::vector<std::string> out;
  size_t num_bytes = 0;
  for (size_t i = first; i < lines.size() && out.size() < kReadLinesMax; ++i) {
    num_bytes += lines[i].size() + (out.empty() ? 0 : 1);
    if (num_bytes > kReadBytesMax) {
      if (out.empty()) out.push_back(std::string(cut_text(lines[i], kReadBytesMax)) + " [cut]");
      break;
    }
    out.emplace_back(lines[i]);
  }
  return out;
}

}  // namespace

Result<std::string> list_dir(const ConfinedDir& dir, const std::string& path) {
  const auto fail = [&](const Status& status) {
    return path_status(status, "no such directory", "not a directory", path);
  };
  const Result<std::string> relative_path = dir.relative(path);
  if (!relative_path.ok()) return fail(relative_path.status());
  Result<UniqueFd> fd = dir.open_dir(*relative_path);
  if (!fd.ok()) return fail(fd.status());
  Result<std::vector<DirEntry>> entries = read_entries(std::move(fd).value(), kDirEntriesMax);
  if (!entries.ok()) return fail(entries.status());
  std::erase_if(*entries, [](const DirEntry& entry) { return entry.name == ".git"; });
  if (entries->empty()) return std::string("(empty)");
  const size_t num_shown = std::min(entries->size(), kListEntriesMax);
  std::ranges::partial_sort(*entries, entries->begin() + static_cast<ptrdiff_t>(num_shown), {},
                            &DirEntry::name);
  std::vector<std::string> lines;
  for (size_t i = 0; i < num_shown; ++i) {
    const DirEntry& entry = (*entries)[i];
    const bool slash = shows_as_directory(dir, *relative_path, entry);
    lines.push_back(printable_line(entry.name) + (slash ? "/" : ""));
  }
  if (entries->size() > num_shown) {
    lines.push_back(fmt::format("... {} more", entries->size() - num_shown));
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

Result<std::string> read_text_file(const ConfinedDir& dir, const std::string& path,
                                   int64_t start_line) {
  SLUICE_ASSIGN_OR_RETURN(const std::string content, load_text(dir, path));
  if (content.empty()) return std::string("(empty)");
  if (start_line < 1) return invalid_argument("start_line {} is not a line number", start_line);
  const std::vector<std::string_view> lines = split_lines(content);
  if (start_line > static_cast<int64_t>(lines.size())) {
    return invalid_argument("start_line {} is past the end ({} lines)", start_line, lines.size());
  }
  const auto first = static_cast<size_t>(start_line - 1);
  std::vector<std::string> out = window(lines, first);
  const size_t num_left = lines.size() - first - out.size();
  if (num_left > 0) out.push_back(fmt::format("... {} more lines", num_left));
  return fmt::format("{}", fmt::join(out, "\n"));
}

Result<std::string> write_text_file(const ConfinedDir& dir, const std::string& path,
                                    const std::string& content) {
  const size_t slash = path.rfind('/');
  const std::string parent = slash == path.npos ? "." : path.substr(0, slash);
  const auto fail = [&](const Status& status) {
    const bool escapes = status.code() == StatusCode::kInvalidArgument;
    return path_status(status, "no such directory", "no such directory", escapes ? path : parent);
  };
  if (content.size() > kToolWriteBytesMax) return resource_exhausted("too large");
  const Result<std::string> relative_path = dir.relative(path);
  if (!relative_path.ok()) return fail(relative_path.status());
  const Result<EntryKind> kind = dir.kind(*relative_path);
  if (kind.ok() && *kind == EntryKind::kDirectory) return unsupported("is a directory: {}", path);
  if (kind.ok() && *kind == EntryKind::kOther) return unsupported("not a text file: {}", path);
  if (!kind.ok() && kind.status().code() != StatusCode::kNotFound) return fail(kind.status());
  if (Status status = dir.write_file(*relative_path, content); !status.ok()) return fail(status);
  return fmt::format("wrote {} bytes to {}", content.size(), path);
}

}  // namespace sluice
