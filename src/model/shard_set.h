#pragma once
// A checkpoint directory's tensors by name: the index and its shards, or one model.safetensors.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "model/safetensors.h"

namespace sluice {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFileName = "model.safetensors";

/// What an index says. Shard names are plain file names: no separators, so that nothing outside the directory is read.
struct ShardIndex {
  std::vector<std::pair<std::string, std::string>> weight_map;  // tensor, shard; sorted by tensor
  std::optional<int64_t> total_size;                            // bytes of all tensors, if stated
};
Result<ShardIndex> parse_shard_index(std::string_view json, std::string_view file);

struct LocatedTensor {
  const SafetensorsFile* file = nullptr;
  const TensorEntry* entry = nullptr;
  std::span<const std::byte> bytes() const { return file->bytes(*entry); }
};

/// Movable; the located pointers stay valid.
class ShardSet {
 public:
  /// The index is followed whenever there is one, whatever its shards are called. Every tensor it names must be in the
  /// shard it names. Symbolic links are followed, as download caches need.
  static Result<ShardSet> open(const Path& dir);

  std::optional<LocatedTensor> find(std::string_view name) const;
  /// All tensors, sorted by name.
  const std::vector<LocatedTensor>& tensors() const { return tensors_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& dir_name() const { return dir_name_; }
  /// Contradictions that do not matter to what is loaded.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Status open_indexed(const Path& dir, std::string_view index_text);
  Status open_single(const Path& dir);
  Status locate(const ShardIndex& index, std::string_view index_name);
  void compare_total(const ShardIndex& index, std::string_view index_name);
  Status check_unlisted();

  std::string dir_name_;
  std::vector<SafetensorsFile> files_;
  std::vector<LocatedTensor> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace sluice
