#include "verify/checkpoint_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <system_error>
#include <vector>

namespace sluice {
namespace {

std::string hash_hex(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

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
    text.append(hash_hex(map.bytes())).push_back('\n');
  }
  return hash_hex(std::as_bytes(std::span(text)));
}

}  // namespace sluice
