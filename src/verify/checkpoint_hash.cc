#include "verify/checkpoint_hash.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include "base/hash.h"

namespace sluice {
namespace {

Result<std::vector<Path>> weight_files(const Path& dir) {
  std::error_code error;
  std::vector<Path> files;
  for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path());
  }
  if (error) return io_error("{}: {}", dir.string(), error.message());
  if (files.empty()) return not_found("{}: no *.safetensors file", dir.string());
  std::sort(files.begin(), files.end(), [](const Path& a, const Path& b) {
    return a.filename().string() < b.filename().string();
  });
  return files;
}

}  // namespace

Result<std::string> checkpoint_hash(const Path& dir) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<Path> files, weight_files(dir));
  std::string text;
  for (const Path& file : files) {
    SLUICE_ASSIGN_OR_RETURN(const MappedFile map, MappedFile::open(file));
    text.append(file.filename().string()).push_back('\0');
    text.append(content_hash(map.bytes())).push_back('\n');
  }
  return content_hash(std::as_bytes(std::span(text)));
}

}  // namespace sluice
