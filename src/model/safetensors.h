#pragma once
// One .safetensors file: an 8-byte little-endian header length, a JSON header, then the tensors' bytes.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace sluice {

/// The format's element types of whole bytes. The loader uses the first four; the others occur in tensors it skips.
enum class Dtype {
  kBf16,
  kF32,
  kF16,
  kF8E4M3,
  kF8E5M2,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};
std::string_view dtype_name(Dtype dtype);
std::optional<Dtype> dtype_from_name(std::string_view name);
int64_t dtype_bytes(Dtype dtype);

/// "[3, 4]".
std::string shape_text(std::span<const int64_t> shape);

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::kBf16;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // from the start of the file
  uint64_t end = 0;

  int64_t num_elements() const;
  int64_t num_bytes() const { return static_cast<int64_t>(end - begin); }
};

/// The published 27B has 1,606 tensors and a header of some 200 KB; the format's own limit is 100 MB.
inline constexpr uint64_t kSafetensorsHeaderBytesMax = uint64_t{8} << 20;
inline constexpr size_t kTensorRankMax = 8;

/// Checks and returns the header of a file of `file_bytes`, of which `prefix` holds at least the header (or all there is).
/// Entries come sorted by offset and tile the data exactly: no gap, no overlap, nothing past the end, each of
/// shape x dtype bytes. Names are unique and valid UTF-8. kDataLoss names the file, the tensor, found and expected.
Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> prefix,
                                                          uint64_t file_bytes,
                                                          std::string_view file);

/// A mapped file with a checked header.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const Path& path);

  const std::string& name() const { return name_; }  // as in messages: the path
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;
  /// Points into the map; may be misaligned for the dtype, since the format does not promise alignment.
  std::span<const std::byte> bytes(const TensorEntry& entry) const;

 private:
  std::string name_;
  MappedFile map_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace sluice
