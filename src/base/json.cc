#include "base/json.h"

#include <simdjson.h>

#include <charconv>
#include <unordered_map>

namespace sluice {

JsonValue JsonValue::boolean(bool value) {
  JsonValue v;
  v.kind_ = Kind::kBool;
  v.bool_ = value;
  return v;
}

JsonValue JsonValue::integer(int64_t value) {
  return number(std::to_string(value));
}

JsonValue JsonValue::number(std::string spelling) {
  JsonValue v;
  v.kind_ = spelling.find_first_of(".eEnN") == std::string::npos ? Kind::kInteger : Kind::kFloat;
  v.text_ = std::move(spelling);
  return v;
}

JsonValue JsonValue::real(double value) {
  JsonValue v;
  v.kind_ = Kind::kFloat;
  v.text_ = python_float_repr(value);
  return v;
}

JsonValue JsonValue::string(std::string value) {
  JsonValue v;
  v.kind_ = Kind::kString;
  v.text_ = std::move(value);
  return v;
}

JsonValue JsonValue::array(std::vector<JsonValue> items) {
  JsonValue v;
  v.kind_ = Kind::kArray;
  v.items_ = std::move(items);
  return v;
}

JsonValue JsonValue::object(std::vector<Member> members) {
  JsonValue v;
  v.kind_ = Kind::kObject;
  v.members_ = std::move(members);
  return v;
}

bool JsonValue::as_bool() const {
  SLUICE_CHECK(is_bool());
  return bool_;
}

const std::string& JsonValue::text() const {
  SLUICE_CHECK(is_string() || is_number());
  return text_;
}

double JsonValue::as_double() const {
  SLUICE_CHECK(is_number());
  double value = 0.0;
  const auto result = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (result.ec == std::errc::result_out_of_range) {
    // from_chars leaves the value alone; strtod gives the infinity or zero that Python would.
    return std::strtod(text_.c_str(), nullptr);
  }
  return value;
}

Result<int64_t> JsonValue::as_int64() const {
  if (!is_integer()) return invalid_argument("expected an integer");
  int64_t value = 0;
  const auto result = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (result.ec != std::errc())
    return invalid_argument("the integer {} does not fit 64 bits", text_);
  return value;
}

const std::vector<JsonValue>& JsonValue::items() const {
  SLUICE_CHECK(is_array());
  return items_;
}
std::vector<JsonValue>& JsonValue::items() {
  SLUICE_CHECK(is_array());
  return items_;
}
const std::vector<JsonValue::Member>& JsonValue::members() const {
  SLUICE_CHECK(is_object());
  return members_;
}
std::vector<JsonValue::Member>& JsonValue::members() {
  SLUICE_CHECK(is_object());
  return members_;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : members_) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

void JsonValue::set(std::string key, JsonValue value) {
  SLUICE_CHECK(is_object());
  for (Member& member : members_) {
    if (member.first == key) {
      member.second = std::move(value);
      return;
    }
  }
  members_.emplace_back(std::move(key), std::move(value));
}

namespace {

namespace od = simdjson::ondemand;

// simdjson's on-demand reader hands out number tokens unread; this is RFC 8259's number grammar.
bool is_json_number(std::string_view s) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9') ++i;
    return i - start;
  };
  if (i < s.size() && s[i] == '-') ++i;
  const bool leading_zero = i < s.size() && s[i] == '0';
  const size_t whole = digits();
  if (whole == 0 || (leading_zero && whole > 1)) return false;
  if (i < s.size() && s[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == s.size();
}

std::string_view trim_space(std::string_view s) {
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\n' || s.back() == '\r' || s.back() == '\t')) {
    s.remove_suffix(1);
  }
  return s;
}

class Reader {
 public:
  explicit Reader(const JsonLimits& limits) : limits_(limits) {}

  template <typename V>  // od::document or od::value: the same interface, no common base
  Status read(V& value, int depth, JsonValue* out) {
    if (depth > limits_.max_depth) {
      return resource_exhausted("JSON is nested deeper than {}", limits_.max_depth);
    }
    od::json_type type;
    SLUICE_RETURN_IF_ERROR(check(value.type().get(type)));
    switch (type) {
      case od::json_type::null: {
        std::string_view token;
        SLUICE_RETURN_IF_ERROR(raw_token(value, &token));
        if (token != "null") return invalid_argument("JSON: unexpected '{}'", token.substr(0, 20));
        *out = JsonValue();
        return Status();
      }
      case od::json_type::boolean: {
        bool b = false;
        SLUICE_RETURN_IF_ERROR(check(value.get_bool().get(b)));
        *out = JsonValue::boolean(b);
        return Status();
      }
      case od::json_type::number: {
        std::string_view token;
        SLUICE_RETURN_IF_ERROR(raw_token(value, &token));
        if (!is_json_number(token)) {
          return invalid_argument("JSON: '{}' is not a number", token.substr(0, 40));
        }
        *out = JsonValue::number(std::string(token));
        return Status();
      }
      case od::json_type::string: {
        std::string_view text;
        SLUICE_RETURN_IF_ERROR(check(value.get_string().get(text)));
        *out = JsonValue::string(std::string(text));
        return Status();
      }
      case od::json_type::array:
        return read_array(value, depth, out);
      case od::json_type::object:
        return read_object(value, depth, out);
    }
    return invalid_argument("JSON: unexpected token");
  }

 private:
  static Status check(simdjson::error_code error) {
    if (error == simdjson::SUCCESS) return Status();
    return invalid_argument("JSON: {}", simdjson::error_message(error));
  }

  static Status raw_token(od::value& value, std::string_view* token) {
    *token = trim_space(value.raw_json_token());
    return Status();
  }
  static Status raw_token(od::document& document, std::string_view* token) {
    SLUICE_RETURN_IF_ERROR(check(document.raw_json_token().get(*token)));
    *token = trim_space(*token);
    return Status();
  }

  template <typename V>
  Status read_array(V& value, int depth, JsonValue* out) {
    od::array array;
    SLUICE_RETURN_IF_ERROR(check(value.get_array().get(array)));
    std::vector<JsonValue> items;
    for (auto element : array) {
      od::value item;
      SLUICE_RETURN_IF_ERROR(check(element.get(item)));
      SLUICE_RETURN_IF_ERROR(read(item, depth + 1, &items.emplace_back()));
    }
    *out = JsonValue::array(std::move(items));
    return Status();
  }

  template <typename V>
  Status read_object(V& value, int depth, JsonValue* out) {
    od::object object;
    SLUICE_RETURN_IF_ERROR(check(value.get_object().get(object)));
    std::vector<JsonValue::Member> members;
    // Linear search would be quadratic in a vocabulary.
    std::unordered_map<std::string, size_t> places;
    for (auto field : object) {
      od::field entry;
      SLUICE_RETURN_IF_ERROR(check(std::move(field).get(entry)));
      std::string_view key;
      SLUICE_RETURN_IF_ERROR(check(entry.unescaped_key().get(key)));
      const auto [place, is_new] = places.try_emplace(std::string(key), members.size());
      if (!is_new && limits_.unique_keys) {
        return invalid_argument("JSON: the key {} appears twice", json_quote(key.substr(0, 200)));
      }
      if (is_new) members.emplace_back(place->first, JsonValue());
      od::value member = entry.value();
      SLUICE_RETURN_IF_ERROR(read(member, depth + 1, &members[place->second].second));
    }
    *out = JsonValue::object(std::move(members));
    return Status();
  }

  const JsonLimits& limits_;
};

}  // namespace

Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return resource_exhausted("JSON of {} bytes, the limit is {}", text.size(), limits.max_bytes);
  }
  // Inside brackets a lone scalar is an ordinary element: simdjson does not check what follows a
  // root scalar.
  std::string bracketed;
  bracketed.reserve(text.size() + 2 + simdjson::SIMDJSON_PADDING);
  bracketed.append("[").append(text).append("]");
  const simdjson::padded_string_view padded(bracketed.data(), bracketed.size(),
                                            bracketed.capacity());
  od::parser parser;
  od::document document;
  if (const auto error = parser.iterate(padded).get(document); error != simdjson::SUCCESS) {
    return invalid_argument("JSON: {}", simdjson::error_message(error));
  }
  JsonValue values;
  Status status = Reader(limits).read(document, -1, &values);
  const char* where = nullptr;
  const bool inside = document.current_location().get(where) == simdjson::SUCCESS;
  if (!status.ok()) {
    if (!inside || where <= bracketed.data()) return status;
    return Status(status.code(),
                  fmt::format("{} near byte {}", status.message(), where - bracketed.data() - 1));
  }
  if (inside || values.items().size() != 1) {
    return invalid_argument("JSON: expected exactly one document");
  }
  return std::move(values.items()[0]);
}

}  // namespace sluice
