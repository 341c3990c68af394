#pragma once
// Unicode normalisation form C with the reference's data (unicode.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace sluice {

/// Buffers that a caller keeps, so that normalising allocates only when a longer text than before needs it.
struct NfcScratch {
  std::string text;
  std::vector<uint32_t> run;       // combining class << 24 | scalar
  std::vector<uint32_t> composed;  // the same
};

/// `text` itself when it is in NFC as far as a quick look can tell, else its NFC in scratch->text (valid until the next
/// call). Cost: linear. Pre: `text` is valid UTF-8.
std::string_view nfc(const UnicodeTables& tables, std::string_view text, NfcScratch* scratch);

}  // namespace sluice
