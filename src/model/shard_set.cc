#include "model/shard_set.h"

#include <algorithm>
#include <map>

#include "model/json_fields.h"

namespace sluice {
namespace {

constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr size_t kShardsMax = 4096;
constexpr size_t kFileNameBytesMax = 255;

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kFileNameBytesMax && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\\') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool by_name(const LocatedTensor& a, const LocatedTensor& b) {
  return a.entry->name < b.entry->name;
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view json, std::string_view file) {
  JsonLimits limits;
  limits.max_depth = 8;
  limits.max_bytes = kIndexBytesMax;
  limits.unique_keys = true;
  const Result<JsonValue> root = parse_json(json, limits);
  if (!root.ok()) return data_loss("{}: {}", file, root.status().message());
  const JsonValue* map = root->find("weight_map");
  if (map == nullptr || !map->is_object() || map->members().empty()) {
    return data_loss("{}: expected an object \"weight_map\" with at least one tensor", file);
  }
  ShardIndex index;
  for (const auto& [tensor, shard] : map->members()) {
    if (!shard.is_string() || !is_plain_file_name(shard.text())) {
      return data_loss("{}: tensor {} is said to be in {}; expected a plain file name", file,
                       shown_name(tensor), shown(shard));
    }
    index.weight_map.emplace_back(tensor, shard.text());
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  const JsonValue* metadata = root->find("metadata");
  const JsonValue* total = metadata == nullptr ? nullptr : metadata->find("total_size");
  if (total != nullptr) {
    const Result<int64_t> bytes = total->as_int64();
    if (bytes.ok()) index.total_size = *bytes;
  }
  return index;
}

Result<ShardSet> ShardSet::open(const Path& dir) {
  ShardSet set;
  set.dir_name_ = dir.string();
  const Result<std::string> text = read_file(dir / kIndexFileName, kIndexBytesMax);
  if (text.ok()) {
    SLUICE_RETURN_IF_ERROR(set.open_indexed(dir, *text));
  } else if (text.status().code() == StatusCode::kNotFound) {
    SLUICE_RETURN_IF_ERROR(set.open_single(dir));
  } else {
    return text.status();
  }
  return set;
}

Status ShardSet::open_indexed(const Path& dir, std::string_view index_text) {
  const std::string index_name = (dir / kIndexFileName).string();
  SLUICE_ASSIGN_OR_RETURN(const ShardIndex index, parse_shard_index(index_text, index_name));
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : index.weight_map) shards.push_back(shard);
  std::sort(shards.begin(), shards.end());
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  if (shards.size() > kShardsMax) {
    return data_loss("{}: names {} files; the limit is {}", index_name, shards.size(), kShardsMax);
  }
  files_.reserve(shards.size());
  for (const std::string& shard : shards) {
    Result<SafetensorsFile> file = SafetensorsFile::open(dir / shard);
    if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
      return not_found("{}; {} names it: is the download complete?", file.status().message(),
                       index_name);
    }
    if (!file.ok()) return file.status();
    files_.push_back(std::move(file).value());
  }
  SLUICE_RETURN_IF_ERROR(locate(index, index_name));
  compare_total(index, index_name);
  return check_unlisted();
}

Status ShardSet::open_single(const Path& dir) {
  Result<SafetensorsFile> file = SafetensorsFile::open(dir / kSingleFileName);
  if (!file.ok() && file.status().code() == StatusCode::kNotFound) {
    return not_found(
        "{}: neither {} nor {} is there; expected a published checkpoint in safetensors form",
        dir_name_, kIndexFileName, kSingleFileName);
  }
  if (!file.ok()) return file.status();
  files_.push_back(std::move(file).value());
  for (const TensorEntry& entry : files_[0].tensors()) tensors_.push_back({&files_[0], &entry});
  std::sort(tensors_.begin(), tensors_.end(), by_name);
  return Status();
}

Status ShardSet::locate(const ShardIndex& index, std::string_view index_name) {
  std::map<std::string, const SafetensorsFile*, std::less<>> by_file;
  for (const SafetensorsFile& file : files_) by_file[Path(file.name()).filename().string()] = &file;
  tensors_.reserve(index.weight_map.size());
  for (const auto& [tensor, shard] : index.weight_map) {
    const SafetensorsFile* file = by_file.at(shard);
    const TensorEntry* entry = file->find(tensor);
    if (entry == nullptr) {
      return data_loss("{}: has no tensor {}, which {} places there", file->name(),
                       shown_name(tensor), index_name);
    }
    tensors_.push_back({file, entry});
  }
  return Status();
}

void ShardSet::compare_total(const ShardIndex& index, std::string_view index_name) {
  if (!index.total_size) return;
  int64_t total = 0;
  for (const LocatedTensor& tensor : tensors_) total += tensor.entry->num_bytes();
  if (total == *index.total_size) return;
  warnings_.push_back(fmt::format("{}: total_size is {}, its tensors have {} bytes", index_name,
                                  *index.total_size, total));
}

// A tensor that the index places elsewhere is stored twice, and nobody can say which copy is meant.
Status ShardSet::check_unlisted() {
  size_t num_unlisted = 0;
  std::string example;
  for (const SafetensorsFile& file : files_) {
    for (const TensorEntry& entry : file.tensors()) {
      const std::optional<LocatedTensor> listed = find(entry.name);
      if (listed && listed->file != &file) {
        return data_loss("{}: tensor {} is also in {}; expected it once", file.name(),
                         shown_name(entry.name), listed->file->name());
      }
      if (listed) continue;
      if (num_unlisted++ == 0) example = shown_name(entry.name);
    }
  }
  if (num_unlisted > 0) {
    warnings_.push_back(
        fmt::format("{}: {} tensors are not in the index and were ignored ({}, ...)", dir_name_,
                    num_unlisted, example));
  }
  return Status();
}

std::optional<LocatedTensor> ShardSet::find(std::string_view name) const {
  const auto place = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const LocatedTensor& tensor, std::string_view key) { return tensor.entry->name < key; });
  if (place == tensors_.end() || place->entry->name != name) return std::nullopt;
  return *place;
}

}  // namespace sluice
