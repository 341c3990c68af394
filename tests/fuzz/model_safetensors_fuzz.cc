// Any bytes as a safetensors file: a status or entries that tile the data.

#include <cstdint>

#include "base/check.h"
#include "model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  // Half of the inputs are headers alone, so that the mutator need not learn the length word.
  std::string framed;
  if (size > 0 && data[0] % 2 == 0) {
    const size_t header_bytes = (size - 1) - (size - 1) / 4;
    for (int shift = 0; shift < 64; shift += 8) {
      framed.push_back(static_cast<char>(static_cast<uint64_t>(header_bytes) >> shift));
    }
    framed.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  } else {
    framed.assign(reinterpret_cast<const char*>(data), size);
  }
  const auto entries =
      parse_safetensors_header(std::as_bytes(std::span(framed)), framed.size(), "fuzz");
  if (!entries.ok()) return 0;
  uint64_t covered = 0;
  for (const TensorEntry& entry : *entries) {
    SLUICE_CHECK_LE(entry.begin, entry.end);
    SLUICE_CHECK(covered == 0 || entry.begin == covered);
    SLUICE_CHECK_EQ(entry.num_bytes(), entry.num_elements() * dtype_bytes(entry.dtype));
    covered = entry.end;
  }
  SLUICE_CHECK(covered == 0 || covered == framed.size());
  return 0;
}
