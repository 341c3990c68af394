#include <charconv>
#include <cmath>

#include "base/json.h"

namespace sluice {
namespace {

struct Separators {
  std::string_view item;
  std::string_view key;
  bool python_numbers;
};

void append_quoted(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += "\\u00";
          out->push_back(kHex[(c >> 4) & 0xf]);
          out->push_back(kHex[c & 0xf]);
        } else {
          out->push_back(c);
        }
    }
  }
  out->push_back('"');
}

std::string python_number(const JsonValue& value) {
  if (value.is_integer()) return value.text() == "-0" ? "0" : value.text();
  const double number = value.as_double();
  // json.dumps spells the three that JSON lacks in JavaScript's words.
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return python_float_repr(number);
}

void append_value(const JsonValue& value, const Separators& sep, std::string* out) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      *out += "null";
      return;
    case JsonValue::Kind::kBool:
      *out += value.as_bool() ? "true" : "false";
      return;
    case JsonValue::Kind::kInteger:
    case JsonValue::Kind::kFloat:
      *out += sep.python_numbers ? python_number(value) : value.text();
      return;
    case JsonValue::Kind::kString:
      append_quoted(value.text(), out);
      return;
    case JsonValue::Kind::kArray: {
      out->push_back('[');
      bool first = true;
      for (const JsonValue& item : value.items()) {
        if (!first) *out += sep.item;
        first = false;
        append_value(item, sep, out);
      }
      out->push_back(']');
      return;
    }
    case JsonValue::Kind::kObject: {
      out->push_back('{');
      bool first = true;
      for (const auto& [key, member] : value.members()) {
        if (!first) *out += sep.item;
        first = false;
        append_quoted(key, out);
        *out += sep.key;
        append_value(member, sep, out);
      }
      out->push_back('}');
      return;
    }
  }
}

}  // namespace

std::string dump_json_python(const JsonValue& value) {
  std::string out;
  append_value(value, Separators{", ", ": ", true}, &out);
  return out;
}

std::string dump_json(const JsonValue& value) {
  std::string out;
  append_value(value, Separators{",", ":", false}, &out);
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out;
  append_quoted(text, &out);
  return out;
}

std::string python_float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back; Python takes the exponent form outside 1e-4 <= |x| < 1e16.
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent >= -4 && exponent < 16) {
    const auto fixed =
        std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
    text.assign(buffer, fixed.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
  }
  return text;  // to_chars writes at least two exponent digits with a sign, as Python does
}

}  // namespace sluice
