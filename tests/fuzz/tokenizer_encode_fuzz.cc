// Any bytes as text: what is decoded, whole or streamed, is the text that was read, up to normalisation.

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/nfc.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace sluice {
namespace {

std::string nfc_of(std::string_view text) {
  NfcScratch scratch;
  return std::string(nfc(UnicodeTables::get(), text, &scratch));
}

void check(const Tokenizer& tokenizer, std::string_view bytes, AddedTokens added) {
  const std::vector<int32_t> ids = tokenizer.encode(bytes, added);
  SLUICE_CHECK(ids == tokenizer.encode(bytes, added));  // from the cache now
  std::string read, decoded, streamed;
  append_lossy_utf8(bytes, &read);
  SLUICE_CHECK(tokenizer.decode(ids, {}, &decoded).ok());
  SLUICE_CHECK(nfc_of(decoded) == nfc_of(read));
  if (added == AddedTokens::kIgnore) SLUICE_CHECK(decoded == nfc_of(read));
  StreamDecoder stream(tokenizer, {});
  for (const int32_t id : ids) {
    SLUICE_CHECK(added == AddedTokens::kMatch || !tokenizer.is_added(id));
    SLUICE_CHECK(stream.push(id, &streamed).ok());
    SLUICE_CHECK(is_valid_utf8(streamed));
  }
  stream.finish(&streamed);
  SLUICE_CHECK(streamed == decoded);
}

Tokenizer load(PreTokenizerRegex regex) {
  return Tokenizer::load(Path(SLUICE_SOURCE_DIR) / "tests/golden/tokenizer", {.regex = regex})
      .value();
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static const Tokenizer tokenizers[] = {load(PreTokenizerRegex::kWithMarks),
                                         load(PreTokenizerRegex::kQwen2)};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const Tokenizer& tokenizer : tokenizers) {
    check(tokenizer, bytes, AddedTokens::kMatch);
    check(tokenizer, bytes, AddedTokens::kIgnore);
  }
  return 0;
}
