#pragma once
// tokenizer.json and tokenizer_config.json, read and checked whole: what comes out is consistent.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pair_ranks.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/token_bytes.h"

namespace sluice {

struct TokenizerSpec {
  /// The bytes of each defined id, base vocabulary and added tokens; ids are dense from 0.
  TokenBytes token_bytes;
  std::vector<int32_t> byte_ids;         // [256] the id of each single byte
  std::vector<Merge> merges;             // by rank
  std::vector<AddedToken> added_tokens;  // by id
  PreTokenizerRegex regex;
};

/// `config_json` may be empty: then only tokenizer.json's added tokens exist. The pre-tokeniser's pattern must be M's or
/// Q's text. kInvalidArgument when a file is malformed, kDataLoss when the files contradict themselves or each other,
/// kUnsupported when they ask for a component or option that this tokenizer does not have.
Result<TokenizerSpec> parse_tokenizer_spec(std::string_view tokenizer_json,
                                           std::string_view config_json);

}  // namespace sluice
