#include "tokenizer/tokenizer_components.h"

#include "base/utf8.h"

namespace sluice {
namespace {

constexpr size_t kQuotedBytesMax = 200;

std::string_view type_of(const JsonValue* object) {
  const JsonValue* type = object == nullptr ? nullptr : object->find("type");
  return type != nullptr && type->is_string() ? std::string_view(type->text()) : "(none)";
}

Status check_normalizer(const JsonValue* normalizer) {
  if (type_of(normalizer) == "Sequence") {
    const JsonValue* list = normalizer->find("normalizers");
    if (list != nullptr && list->is_array() && list->items().size() == 1) {
      normalizer = &list->items()[0];
    }
  }
  return require_type(normalizer, "NFC", "tokenizer.json: normalizer");
}

Result<PreTokenizerRegex> regex_of(const JsonValue& split) {
  constexpr std::string_view kWhere = "tokenizer.json: pre_tokenizer Split";
  SLUICE_RETURN_IF_ERROR(require_off(split, {"invert"}, kWhere));
  const JsonValue* behavior = split.find("behavior");
  if (behavior == nullptr || !behavior->is_string() || behavior->text() != "Isolated") {
    return unsupported("{}: the behavior is not \"Isolated\"", kWhere);
  }
  const JsonValue* pattern = split.find("pattern");
  const JsonValue* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  if (regex == nullptr || !regex->is_string())
    return unsupported("{} has no Regex pattern", kWhere);
  if (regex->text() == kWithMarksRegexText) return PreTokenizerRegex::kWithMarks;
  if (regex->text() == kQwen2RegexText) return PreTokenizerRegex::kQwen2;
  return unsupported(
      "{}: the regex {} is neither of the two this family uses; a matcher must be written for it",
      kWhere, quoted(regex->text()));
}

}  // namespace

std::string quoted(std::string_view text) {
  text = text.substr(0, kQuotedBytesMax);
  text.remove_suffix(truncated_utf8_tail(text));
  return json_quote(text);
}

std::string json_text(const JsonValue& value) {
  std::string text = dump_json(value).substr(0, kQuotedBytesMax);
  text.resize(text.size() - truncated_utf8_tail(text));
  return text;
}

Result<const JsonValue*> required(const JsonValue& object, std::string_view key,
                                  JsonValue::Kind kind, std::string_view where) {
  const JsonValue* value = object.find(key);
  if (value == nullptr) return invalid_argument("{} has no \"{}\"", where, key);
  if (value->kind() != kind) {
    return invalid_argument("{}: \"{}\" is {}, which is of the wrong kind", where, key,
                            json_text(*value));
  }
  return value;
}

Status require_off(const JsonValue& object, std::initializer_list<std::string_view> keys,
                   std::string_view where) {
  for (const std::string_view key : keys) {
    const JsonValue* value = object.find(key);
    if (value == nullptr || value->is_null()) continue;
    if (value->is_bool() && !value->as_bool()) continue;
    if (value->is_string() && value->text().empty()) continue;
    return unsupported("{}: \"{}\" is {}; only its being off is supported", where, key,
                       json_text(*value));
  }
  return Status();
}

Status require_type(const JsonValue* object, std::string_view type, std::string_view where) {
  if (type_of(object) == type) return Status();
  return unsupported("{} has type {}; only {} is supported", where, quoted(type_of(object)), type);
}

Status check_components(const JsonValue& root) {
  SLUICE_RETURN_IF_ERROR(require_off(root, {"truncation", "padding"}, "tokenizer.json"));
  SLUICE_RETURN_IF_ERROR(check_normalizer(root.find("normalizer")));
  SLUICE_RETURN_IF_ERROR(
      require_type(root.find("decoder"), "ByteLevel", "tokenizer.json: decoder"));
  const JsonValue* post = root.find("post_processor");
  if (post == nullptr || post->is_null()) return Status();
  return require_type(post, "ByteLevel", "tokenizer.json: post_processor");
}

Result<PreTokenizerRegex> parse_pre_tokenizer(const JsonValue* pre_tokenizer) {
  SLUICE_RETURN_IF_ERROR(require_type(pre_tokenizer, "Sequence", "tokenizer.json: pre_tokenizer"));
  const JsonValue* list = pre_tokenizer->find("pretokenizers");
  if (list == nullptr || !list->is_array() || list->items().size() != 2) {
    return unsupported("tokenizer.json: the pre_tokenizer Sequence is not [Split, ByteLevel]");
  }
  const JsonValue& split = list->items()[0];
  const JsonValue& byte_level = list->items()[1];
  SLUICE_RETURN_IF_ERROR(require_type(&split, "Split", "tokenizer.json: first pre_tokenizer"));
  SLUICE_RETURN_IF_ERROR(
      require_type(&byte_level, "ByteLevel", "tokenizer.json: second pre_tokenizer"));
  if (byte_level.find("use_regex") == nullptr || byte_level.find("add_prefix_space") == nullptr) {
    return unsupported(
        "tokenizer.json: the ByteLevel pre_tokenizer must set use_regex and add_prefix_space to "
        "false (both default to true)");
  }
  SLUICE_RETURN_IF_ERROR(require_off(byte_level, {"use_regex", "add_prefix_space"},
                                     "tokenizer.json: pre_tokenizer ByteLevel"));
  return regex_of(split);
}

}  // namespace sluice
