#include "model/json_fields.h"

namespace sluice {
namespace {

std::string cut(std::string text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xc0u) == 0x80u) {
    --max_bytes;
  }
  text.resize(max_bytes);
  return text + "...";
}

}  // namespace

std::string shown(const JsonValue& value) {
  return cut(dump_json(value), 60);
}

std::string shown_name(std::string_view name) {
  std::string quoted = json_quote(name);
  return cut(quoted.substr(1, quoted.size() - 2), 200);
}

const JsonValue* JsonFields::find(std::string_view key) const {
  const JsonValue* value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Status JsonFields::wrong(std::string_view key, std::string_view expected) const {
  const JsonValue* value = object_.find(key);
  if (value == nullptr) {
    return invalid_argument("{}: {} is missing; expected {}", file_, path(key), expected);
  }
  return invalid_argument("{}: {} is {}; expected {}", file_, path(key), shown(*value), expected);
}

Result<int64_t> JsonFields::integer(std::string_view key, int64_t min, int64_t max) const {
  const std::string expected = fmt::format("an integer from {} to {}", min, max);
  const JsonValue* value = find(key);
  if (value == nullptr) return wrong(key, expected);
  const Result<int64_t> number = value->as_int64();
  if (!number.ok() || *number < min || *number > max) return wrong(key, expected);
  return *number;
}

Result<double> JsonFields::real(std::string_view key, double min, double max) const {
  const std::string expected = fmt::format("a number from {} to {}", min, max);
  const JsonValue* value = find(key);
  if (value == nullptr || !value->is_number()) return wrong(key, expected);
  const double number = value->as_double();
  if (!(number >= min && number <= max)) return wrong(key, expected);
  return number;
}

Result<bool> JsonFields::boolean(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr || !value->is_bool()) return wrong(key, "true or false");
  return value->as_bool();
}

Result<std::string> JsonFields::text(std::string_view key) const {
  const JsonValue* value = find(key);
  if (value == nullptr || !value->is_string()) return wrong(key, "a string");
  return value->text();
}

Result<std::vector<int32_t>> JsonFields::ids(std::string_view key, int32_t min, int32_t max) const {
  const JsonValue* value = find(key);
  std::vector<int32_t> ids;
  if (value == nullptr) return ids;
  const auto add = [&](const JsonValue& item) {
    const Result<int64_t> id = item.as_int64();
    if (!id.ok() || *id < min || *id > max) return false;
    ids.push_back(static_cast<int32_t>(*id));
    return true;
  };
  constexpr size_t kIdsMax = 64;
  const bool is_list = value->is_array() && value->items().size() <= kIdsMax;
  bool good = is_list || add(*value);
  if (is_list) {
    for (const JsonValue& item : value->items()) good = good && add(item);
  }
  if (!good) {
    return wrong(key, fmt::format("an id or at most {} ids from {} to {}", kIdsMax, min, max));
  }
  return ids;
}

}  // namespace sluice
