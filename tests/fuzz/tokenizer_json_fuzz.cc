// Any bytes as tokenizer.json, then a NUL, then tokenizer_config.json: loads or gives a status; what loads must work.
// Seeds: tests/golden/tokenizer.

#include "base/check.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view config =
      cut == std::string_view::npos ? std::string_view() : input.substr(cut + 1);
  const auto tokenizer = sluice::Tokenizer::parse(input.substr(0, cut), config, {});
  if (!tokenizer.ok()) {
    SLUICE_CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  const std::string_view text = "Hello <|im_end|> world 12\n\n";
  for (const auto added : {sluice::AddedTokens::kMatch, sluice::AddedTokens::kIgnore}) {
    std::string decoded;
    SLUICE_CHECK(tokenizer->decode(tokenizer->encode(text, added), {}, &decoded).ok());
    SLUICE_CHECK_EQ(decoded, text);
  }
  return 0;
}
