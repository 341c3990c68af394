#pragma once
// The parts of tokenizer.json around the model: accepted when they are what this tokenizer does, refused by name else.

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "tokenizer/pretokenize.h"

namespace sluice {

/// The beginning of `text` as a JSON string, for messages.
std::string quoted(std::string_view text);
/// The beginning of the value as compact JSON, for messages.
std::string json_text(const JsonValue& value);
/// A member of the right kind, else kInvalidArgument.
Result<const JsonValue*> required(const JsonValue& object, std::string_view key,
                                  JsonValue::Kind kind, std::string_view where);
/// kUnsupported unless each option is absent, null, false or "".
Status require_off(const JsonValue& object, std::initializer_list<std::string_view> keys,
                   std::string_view where);
/// kUnsupported unless `object` (may be null) has this "type".
Status require_type(const JsonValue* object, std::string_view type, std::string_view where);

/// Truncation, padding, normalizer (NFC), decoder and post-processor (ByteLevel or none).
Status check_components(const JsonValue& root);
/// [Split by one of the two regexes, ByteLevel] and nothing else. `pre_tokenizer` may be null.
Result<PreTokenizerRegex> parse_pre_tokenizer(const JsonValue* pre_tokenizer);

}  // namespace sluice
