#include "model/safetensors.h"

#include <algorithm>

#include "model/json_fields.h"

namespace sluice {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  int64_t bytes;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kBf16, "BF16", 2},      {Dtype::kF32, "F32", 4},        {Dtype::kF16, "F16", 2},
    {Dtype::kF8E4M3, "F8_E4M3", 1}, {Dtype::kF8E5M2, "F8_E5M2", 1}, {Dtype::kF64, "F64", 8},
    {Dtype::kI64, "I64", 8},        {Dtype::kI32, "I32", 4},        {Dtype::kI16, "I16", 2},
    {Dtype::kI8, "I8", 1},          {Dtype::kU64, "U64", 8},        {Dtype::kU32, "U32", 4},
    {Dtype::kU16, "U16", 2},        {Dtype::kU8, "U8", 1},          {Dtype::kBool, "BOOL", 1},
};
const DtypeRow& row_of(Dtype dtype) {
  const DtypeRow& row = kDtypes[static_cast<size_t>(dtype)];
  SLUICE_CHECK(row.dtype == dtype);
  return row;
}

constexpr uint64_t kLengthBytes = 8;

// No tensor of this family comes near; below it, byte counts of any dtype fit int64.
constexpr int64_t kElementsMax = int64_t{1} << 48;

// One entry of the header on its way to a TensorEntry; offsets are relative to the data until placed.
class EntryReader {
 public:
  EntryReader(std::string_view file, const std::string& name) : file_(file) { entry_.name = name; }

  Result<TensorEntry> read(const JsonValue& object) {
    if (!object.is_object()) return wrong("is " + shown(object), "an object");
    SLUICE_RETURN_IF_ERROR(read_dtype(object));
    SLUICE_RETURN_IF_ERROR(read_shape(object));
    SLUICE_RETURN_IF_ERROR(read_offsets(object));
    const int64_t expected = entry_.num_elements() * dtype_bytes(entry_.dtype);
    if (entry_.num_bytes() == expected) return std::move(entry_);
    return wrong(
        fmt::format("has {} bytes", entry_.num_bytes()),
        fmt::format("{} for {} {}", expected, dtype_name(entry_.dtype), shape_text(entry_.shape)));
  }

 private:
  Status wrong(std::string_view found, std::string_view expected) const {
    return data_loss("{}: tensor {} {}; expected {}", file_, shown_name(entry_.name), found,
                     expected);
  }

  Status wrong_field(const char* key, const JsonValue* value, std::string_view expected) const {
    return wrong(value == nullptr ? fmt::format("has no {}", key)
                                  : fmt::format("has {} {}", key, shown(*value)),
                 expected);
  }

  Status read_dtype(const JsonValue& object) {
    const JsonValue* value = object.find("dtype");
    const bool is_text = value != nullptr && value->is_string();
    const std::optional<Dtype> dtype = is_text ? dtype_from_name(value->text()) : std::nullopt;
    if (!dtype) return wrong_field("dtype", value, "one of BF16, F32, F8_E4M3, ...");
    entry_.dtype = *dtype;
    return Status();
  }

  Status read_shape(const JsonValue& object) {
    const JsonValue* value = object.find("shape");
    const std::string expected =
        fmt::format("at most {} sizes whose product is at most 2^48", kTensorRankMax);
    if (value == nullptr || !value->is_array() || value->items().size() > kTensorRankMax) {
      return wrong_field("shape", value, expected);
    }
    int64_t product = 1;
    for (const JsonValue& item : value->items()) {
      const Result<int64_t> size = item.as_int64();
      const bool fits = size.ok() && *size >= 0 && *size <= kElementsMax &&
                        (*size == 0 || product <= kElementsMax / *size);
      if (!fits) return wrong_field("shape", value, expected);
      product *= *size;
      entry_.shape.push_back(*size);
    }
    return Status();
  }

  Status read_offsets(const JsonValue& object) {
    const JsonValue* value = object.find("data_offsets");
    constexpr std::string_view kExpected = "[begin, end] with 0 <= begin <= end";
    if (value == nullptr || !value->is_array() || value->items().size() != 2) {
      return wrong_field("data_offsets", value, kExpected);
    }
    const Result<int64_t> begin = value->items()[0].as_int64();
    const Result<int64_t> end = value->items()[1].as_int64();
    if (!begin.ok() || !end.ok() || *begin < 0 || *end < *begin) {
      return wrong_field("data_offsets", value, kExpected);
    }
    entry_.begin = static_cast<uint64_t>(*begin);
    entry_.end = static_cast<uint64_t>(*end);
    return Status();
  }

  std::string_view file_;
  TensorEntry entry_;
};

Result<uint64_t> header_length(std::span<const std::byte> prefix, uint64_t file_bytes,
                               std::string_view file) {
  if (file_bytes < kLengthBytes || prefix.size() < kLengthBytes) {
    return data_loss("{}: {} bytes; a safetensors file has at least {}", file, file_bytes,
                     kLengthBytes);
  }
  constexpr std::string_view kLfsPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(prefix.data()), prefix.size())
          .starts_with(kLfsPointer)) {
    return data_loss("{}: this is a Git LFS pointer, not the weights: fetch them (git lfs pull)",
                     file);
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<uint64_t>(prefix[i]) << (8 * i);
  }
  if (length > kSafetensorsHeaderBytesMax) {
    return data_loss("{}: header of {} bytes; the limit is {} (is this a safetensors file?)", file,
                     length, kSafetensorsHeaderBytesMax);
  }
  if (length > file_bytes - kLengthBytes || length > prefix.size() - kLengthBytes) {
    return data_loss("{}: truncated: header of {} bytes in a file of {}", file, length, file_bytes);
  }
  return length;
}

// The entries, sorted, must cover [0, data_bytes) exactly; then offsets become positions in the file.
Status place(std::vector<TensorEntry>* entries, uint64_t data_start, uint64_t data_bytes,
             std::string_view file) {
  std::sort(entries->begin(), entries->end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = 0;
  for (TensorEntry& entry : *entries) {
    if (entry.end > data_bytes) {
      return data_loss(
          "{}: tensor {} ends at byte {} of the data, which has {}: the file is truncated or its "
          "header is wrong",
          file, shown_name(entry.name), entry.end, data_bytes);
    }
    if (entry.begin != covered) {
      return data_loss("{}: tensor {} starts at byte {} of the data; expected {} ({})", file,
                       shown_name(entry.name), entry.begin, covered,
                       entry.begin < covered ? "tensors overlap" : "a gap");
    }
    covered = entry.end;
    entry.begin += data_start;
    entry.end += data_start;
  }
  if (covered == data_bytes) return Status();
  return data_loss("{}: {} bytes after the last tensor; expected none", file, data_bytes - covered);
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
  return row_of(dtype).name;
}
int64_t dtype_bytes(Dtype dtype) {
  return row_of(dtype).bytes;
}

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeRow& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

int64_t TensorEntry::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> prefix,
                                                          uint64_t file_bytes,
                                                          std::string_view file) {
  SLUICE_ASSIGN_OR_RETURN(const uint64_t length, header_length(prefix, file_bytes, file));
  const std::string_view json(reinterpret_cast<const char*>(prefix.data()) + kLengthBytes,
                              static_cast<size_t>(length));
  JsonLimits limits;
  limits.max_depth = 4;
  limits.max_bytes = kSafetensorsHeaderBytesMax;
  limits.unique_keys = true;
  const Result<JsonValue> header = parse_json(json, limits);
  if (!header.ok()) {
    return data_loss("{}: header: {}", file, header.status().message());
  }
  if (!header->is_object()) return data_loss("{}: header: expected a JSON object", file);
  std::vector<TensorEntry> entries;
  entries.reserve(header->members().size());
  for (const auto& [name, object] : header->members()) {
    if (name == "__metadata__") continue;
    SLUICE_ASSIGN_OR_RETURN(TensorEntry entry, EntryReader(file, name).read(object));
    entries.push_back(std::move(entry));
  }
  const uint64_t data_start = kLengthBytes + length;
  SLUICE_RETURN_IF_ERROR(place(&entries, data_start, file_bytes - data_start, file));
  return entries;
}

Result<SafetensorsFile> SafetensorsFile::open(const Path& path) {
  SafetensorsFile file;
  file.name_ = path.string();
  SLUICE_ASSIGN_OR_RETURN(file.map_, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.map_.bytes();
  SLUICE_ASSIGN_OR_RETURN(file.tensors_, parse_safetensors_header(bytes, bytes.size(), file.name_));
  for (size_t i = 0; i < file.tensors_.size(); ++i) file.places_[file.tensors_[i].name] = i;
  return file;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place = places_.find(std::string(name));
  return place == places_.end() ? nullptr : &tensors_[place->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return map_.bytes().subspan(static_cast<size_t>(entry.begin),
                              static_cast<size_t>(entry.end - entry.begin));
}

}  // namespace sluice
