// Any text as an index: a status, or shard names that stay inside their directory.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/shard_set.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const auto index =
      parse_shard_index(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!index.ok()) return 0;
  for (const auto& [tensor, shard] : index->weight_map) {
    const Path joined = (Path("dir") / shard).lexically_normal();
    SLUICE_CHECK(joined.parent_path() == "dir" && joined.filename() == shard);
  }
  return 0;
}
