#pragma once
// The text of one parameter to a JSON value, as the tool's schema wants it.

#include <cstdint>

#include "chat/message.h"

namespace sluice::chat {

/// The JSON types a parameter's schema admits.
class ValueTypes {
 public:
  enum Type : uint8_t {
    kString = 1,
    kInteger = 2,
    kNumber = 4,
    kBoolean = 8,
    kObject = 16,
    kArray = 32,
    kNull = 64
  };

  constexpr ValueTypes() = default;
  constexpr explicit ValueTypes(unsigned mask) : mask_(mask) {}
  constexpr bool has(Type type) const { return (mask_ & type) != 0; }
  constexpr bool only(unsigned mask) const { return (mask_ & ~mask) == 0; }
  constexpr unsigned mask() const { return mask_; }

 private:
  unsigned mask_ = 0;
};

/// Reads type (one or a list), enum, const, anyOf, oneOf, allOf, nullable, properties, items and
/// local "#/..." $refs of parameter `key` in the arguments' schema `parameters` (nullptr: no
/// schema). A parameter of which nothing is known is a string: typing without a schema rewrites
/// strings ("02134", "true").
ValueTypes value_types(const JsonValue* parameters, std::string_view key);

/// `text` as one of `types`. Strings stay raw. Otherwise JSON is tried, then Python's literals
/// (True, None, 'x'). An integral float is an integer; integers of any size keep their digits.
/// Beside string, other types win only in their canonical spelling. What fits no type stays the raw
/// string: the tool gets to say what is wrong.
JsonValue typed_value(std::string_view text, ValueTypes types);

/// A Python literal of dicts, lists, tuples (as arrays), strings, numbers, True, False, None and
/// JSON's words; nothing is evaluated. Linear time; refuses nesting over 64 levels.
Result<JsonValue> parse_python_literal(std::string_view text);

}  // namespace sluice::chat
