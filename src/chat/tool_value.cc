#include "chat/tool_value.h"

#include <cmath>
#include <optional>

#include "chat/text.h"

namespace sluice::chat {
namespace {

// $ref and combinators nest; a schema that refers to itself ends here.
constexpr int kMaxSchemaDepth = 16;
// 2^53: beyond it a float's digits are not the number's.
constexpr double kMaxExactInteger = 9007199254740992.0;
constexpr JsonLimits kValueLimits = {.max_depth = 64};

/// JSON schema's words, and those of Python that some clients write instead.
unsigned type_from_word(std::string_view word) {
  if (word == "string" || word == "str") return ValueTypes::kString;
  if (word == "integer" || word == "int") return ValueTypes::kInteger;
  if (word == "number" || word == "float") return ValueTypes::kNumber;
  if (word == "boolean" || word == "bool") return ValueTypes::kBoolean;
  if (word == "object" || word == "dict") return ValueTypes::kObject;
  if (word == "array" || word == "list") return ValueTypes::kArray;
  if (word == "null") return ValueTypes::kNull;
  return 0;
}

unsigned type_of(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return ValueTypes::kNull;
    case JsonValue::Kind::kBool:
      return ValueTypes::kBoolean;
    case JsonValue::Kind::kInteger:
      return ValueTypes::kInteger;
    case JsonValue::Kind::kFloat:
      return ValueTypes::kNumber;
    case JsonValue::Kind::kString:
      return ValueTypes::kString;
    case JsonValue::Kind::kArray:
      return ValueTypes::kArray;
    case JsonValue::Kind::kObject:
      return ValueTypes::kObject;
  }
  return 0;
}

unsigned types_of_words(const JsonValue& type) {
  if (type.is_string()) return type_from_word(type.text());
  unsigned mask = 0;
  if (type.is_array()) {
    for (const JsonValue& word : type.items())
      mask |= word.is_string() ? type_from_word(word.text()) : 0;
  }
  return mask;
}

/// "#/$defs/Name"; nullptr when it leads nowhere. Escapes in pointers (~0, ~1) do not occur in
/// names that matter.
const JsonValue* resolve_ref(std::string_view ref, const JsonValue& root) {
  if (!ref.starts_with("#/")) return nullptr;
  const JsonValue* at = &root;
  ref.remove_prefix(2);
  while (at != nullptr && !ref.empty()) {
    const size_t slash = std::min(ref.find('/'), ref.size());
    at = at->find(ref.substr(0, slash));
    ref.remove_prefix(std::min(slash + 1, ref.size()));
  }
  return at;
}

unsigned schema_types(const JsonValue& schema, const JsonValue& root, int depth);

unsigned combined_types(const JsonValue& schema, const JsonValue& root, int depth) {
  unsigned mask = 0;
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const JsonValue* list = schema.find(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const JsonValue& item : list->items()) mask |= schema_types(item, root, depth + 1);
  }
  const JsonValue* ref = schema.find("$ref");
  if (ref != nullptr && ref->is_string()) {
    if (const JsonValue* target = resolve_ref(ref->text(), root))
      mask |= schema_types(*target, root, depth + 1);
  }
  return mask;
}

unsigned listed_types(const JsonValue& schema) {
  unsigned mask = 0;
  if (const JsonValue* choices = schema.find("enum"); choices != nullptr && choices->is_array()) {
    for (const JsonValue& choice : choices->items()) mask |= type_of(choice);
  }
  if (const JsonValue* constant = schema.find("const")) mask |= type_of(*constant);
  return mask;
}

unsigned schema_types(const JsonValue& schema, const JsonValue& root, int depth) {
  if (depth > kMaxSchemaDepth || !schema.is_object()) return 0;
  unsigned mask = 0;
  if (const JsonValue* type = schema.find("type")) mask = types_of_words(*type);
  if (mask == 0) mask = combined_types(schema, root, depth) | listed_types(schema);
  if (mask == 0 && schema.find("properties") != nullptr) mask = ValueTypes::kObject;
  if (mask == 0 && schema.find("items") != nullptr) mask = ValueTypes::kArray;
  const JsonValue* nullable = schema.find("nullable");
  const bool is_nullable = nullable != nullptr && nullable->is_bool() && nullable->as_bool();
  return mask != 0 && is_nullable ? mask | ValueTypes::kNull : mask;
}

/// "140.0" is 140, digit for digit at any length; with an exponent only what a double holds
/// exactly.
std::optional<JsonValue> integral(const JsonValue& number) {
  const std::string& text = number.text();
  if (number.is_integer()) return number;
  const size_t point = text.find('.');
  if (text.find_first_of("eE") == std::string::npos) {
    if (text.find_first_not_of('0', point + 1) != std::string::npos) return std::nullopt;
    return JsonValue::number(text.substr(0, point));
  }
  const double value = number.as_double();
  if (!(std::fabs(value) <= kMaxExactInteger) || value != std::floor(value)) return std::nullopt;
  return JsonValue::integer(static_cast<int64_t>(value));
}

std::optional<JsonValue> word_value(std::string_view text, ValueTypes types) {
  if (types.has(ValueTypes::kNull) && (text == "null" || text == "None")) return JsonValue();
  if (types.has(ValueTypes::kBoolean)) {
    if (text == "true" || text == "True") return JsonValue::boolean(true);
    if (text == "false" || text == "False") return JsonValue::boolean(false);
  }
  return std::nullopt;
}

std::optional<JsonValue> number_value(std::string_view text, ValueTypes types) {
  if (!types.has(ValueTypes::kInteger) && !types.has(ValueTypes::kNumber)) return std::nullopt;
  if (text.empty() || (text.front() != '-' && (text.front() < '0' || text.front() > '9')))
    return std::nullopt;
  Result<JsonValue> parsed = parse_json(text, kValueLimits);
  if (!parsed.ok() || !parsed->is_number()) return std::nullopt;
  if (types.has(ValueTypes::kNumber)) return *std::move(parsed);
  return integral(*parsed);
}

std::optional<JsonValue> container_value(std::string_view text, ValueTypes types) {
  if (text.empty() || (text.front() != '{' && text.front() != '[' && text.front() != '('))
    return std::nullopt;
  const auto fits = [&](const Result<JsonValue>& value) {
    return value.ok() && ((value->is_object() && types.has(ValueTypes::kObject)) ||
                          (value->is_array() && types.has(ValueTypes::kArray)));
  };
  if (Result<JsonValue> json = parse_json(text, kValueLimits); fits(json)) return *std::move(json);
  // A string may look like Python; it is a string then.
  if (types.has(ValueTypes::kString)) return std::nullopt;
  if (Result<JsonValue> python = parse_python_literal(text); fits(python))
    return *std::move(python);
  return std::nullopt;
}

/// Beside string, a scalar must be spelled as a renderer would spell it: "02134" and "1e5" are
/// strings.
bool is_canonical(std::string_view text, const JsonValue& value) {
  if (value.is_object() || value.is_array()) return true;
  if (value.is_null() || value.is_bool()) return true;
  return dump_json_python(value) == text;
}

}  // namespace

ValueTypes value_types(const JsonValue* parameters, std::string_view key) {
  const JsonValue* properties = parameters != nullptr ? parameters->find("properties") : nullptr;
  const JsonValue* schema = properties != nullptr ? properties->find(key) : nullptr;
  const unsigned mask = schema != nullptr ? schema_types(*schema, *parameters, 0) : 0;
  return ValueTypes(mask != 0 ? mask : static_cast<unsigned>(ValueTypes::kString));
}

JsonValue typed_value(std::string_view text, ValueTypes types) {
  const bool may_be_string = types.has(ValueTypes::kString);
  // A string's own white space counts, so beside string nothing is stripped.
  const std::string_view bare = may_be_string ? text : strip_ascii(text);
  std::optional<JsonValue> value;
  if (!types.only(ValueTypes::kString)) {
    value = word_value(bare, types);
    if (!value) value = number_value(bare, types);
    if (!value) value = container_value(bare, types);
  }
  if (value && (!may_be_string || is_canonical(bare, *value))) return *std::move(value);
  return JsonValue::string(std::string(text));
}

}  // namespace sluice::chat
