#pragma once
// The agent's tools over files. Every result is text for a model: a Status's message is the text
// after "error: ". `path` is as the model wrote it and is quoted so.

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/tools/confined_dir.h"
#include "base/status.h"

namespace sluice {

/// Entries but ".git", bytewise order, directories (and links to directories inside) end in "/"; 30
/// of them, then "... N more". "(empty)".
Result<std::string> list_dir(const ConfinedDir& dir, const std::string& path);

/// Whole lines from `start_line` (1 is the first): at most 40 and 2,000 bytes, then "... N more
/// lines". A first line that is longer is cut and marked " [cut]". "(empty)". Files over
/// kToolFileBytesMax are refused.
Result<std::string> read_text_file(const ConfinedDir& dir, const std::string& path,
                                   int64_t start_line);

/// "path:LINE: text" of lines that contain `pattern`, files in bytewise order of their paths; 15 of
/// them, then "... N more matches". "no matches". Skips ".git" and "build", what is not text or over
/// 1 MiB, and links. Stops at kSearchFilesMax files or kSearchBytesMax bytes and says so.
Result<std::string> search(const ConfinedDir& dir, const std::string& pattern,
                           const std::string& path);

/// "wrote N bytes to P". The directory must exist; what is there and no regular file is refused.
Result<std::string> write_text_file(const ConfinedDir& dir, const std::string& path,
                                    const std::string& content);

inline constexpr size_t kToolFileBytesMax = size_t{16} << 20;
inline constexpr size_t kToolWriteBytesMax = size_t{1} << 20;
inline constexpr size_t kSearchFileBytesMax = size_t{1} << 20;
inline constexpr size_t kSearchBytesMax = size_t{256} << 20;
inline constexpr int64_t kSearchFilesMax = 20'000;
/// A directory with more entries is an error to list and is cut short in a search.
inline constexpr int64_t kDirEntriesMax = 200'000;

}  // namespace sluice
