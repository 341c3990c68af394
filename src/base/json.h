#pragma once
// JSON as the client wrote it: key order, duplicates resolved to the last, and number spelling are
// kept, because they are part of the prompt. Parsing is simdjson's; nothing here throws.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice {

class JsonValue {
 public:
  enum class Kind { kNull, kBool, kInteger, kFloat, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;  // null
  static JsonValue boolean(bool value);
  static JsonValue integer(int64_t value);
  /// `spelling` is a JSON number's text, of any size ("12345678901234567890123").
  static JsonValue number(std::string spelling);
  static JsonValue real(double value);
  static JsonValue string(std::string value);
  static JsonValue array(std::vector<JsonValue> items = {});
  static JsonValue object(std::vector<Member> members = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_integer() const { return kind_ == Kind::kInteger; }
  bool is_number() const { return kind_ == Kind::kInteger || kind_ == Kind::kFloat; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  bool as_bool() const;
  /// The text of a string, or the spelling of a number.
  const std::string& text() const;
  double as_double() const;
  /// Fails when the value is not an integer or does not fit.
  Result<int64_t> as_int64() const;

  const std::vector<JsonValue>& items() const;
  std::vector<JsonValue>& items();
  const std::vector<Member>& members() const;
  std::vector<Member>& members();
  /// The member's value, or nullptr (also when this is no object).
  const JsonValue* find(std::string_view key) const;
  /// Replaces in place or appends.
  void set(std::string key, JsonValue value);

  friend bool operator==(const JsonValue&, const JsonValue&) = default;

 private:
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
};

struct JsonLimits {
  int max_depth = 128;
  size_t max_bytes = size_t{256} << 20;
  /// Refuse a repeated key instead of keeping its last value (files in which a repeat is damage).
  bool unique_keys = false;
};

/// Parses one JSON document; trailing text is an error. The message gives the byte offset where
/// simdjson tells it. Invalid UTF-8 is refused. A repeated key keeps its first place and its last
/// value (Python's rule).
Result<JsonValue> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Python's json.dumps(value, ensure_ascii=False): ", " and ": ", insertion order, Python's float
/// spelling ("1.0", "1e-05", "1e+16", "inf" as Infinity), integers of any size digit for digit. This
/// is what chat templates' tojson prints.
std::string dump_json_python(const JsonValue& value);
/// Compact: no spaces, numbers as spelled.
std::string dump_json(const JsonValue& value);
/// A double as Python's repr() spells it: "1.0", "1e-05", "1e+16", "inf", "nan".
std::string python_float_repr(double value);
/// A JSON string literal, quotes included; control characters escaped, all else raw UTF-8.
std::string json_quote(std::string_view text);

}  // namespace sluice
