#include <optional>
#include <unordered_map>

#include "base/utf8.h"
#include "chat/text.h"
#include "chat/tool_value.h"

namespace sluice::chat {
namespace {

constexpr int kMaxDepth = 64;

bool is_scalar(uint32_t code_point) {
  return code_point <= 0x10ffff && (code_point < 0xd800 || code_point > 0xdfff);
}

/// Recursive descent; the depth is bounded. nullopt: not a literal.
class LiteralReader {
 public:
  explicit LiteralReader(std::string_view text) : text_(text) {}

  std::optional<JsonValue> read_all() {
    std::optional<JsonValue> value = read(0);
    skip_spaces();
    if (pos_ != text_.size()) return std::nullopt;
    return value;
  }

 private:
  std::optional<JsonValue> read(int depth) {
    skip_spaces();
    if (depth > kMaxDepth || pos_ == text_.size()) return std::nullopt;
    switch (text_[pos_]) {
      case '{':
        return read_dict(depth);
      case '[':
        return read_list(depth, ']');
      case '(':
        return read_list(depth, ')');
      case '"':
      case '\'':
        return read_string();
      default:
        return read_word();
    }
  }

  std::optional<JsonValue> read_list(int depth, char close) {
    std::vector<JsonValue> items;
    ++pos_;
    while (!take(close)) {
      std::optional<JsonValue> item = read(depth + 1);
      if (!item) return std::nullopt;
      items.push_back(*std::move(item));
      if (!take(',') && !next_is(close)) return std::nullopt;
    }
    return JsonValue::array(std::move(items));
  }

  std::optional<JsonValue> read_dict(int depth) {
    std::vector<JsonValue::Member> members;
    std::unordered_map<std::string, size_t> places;
    ++pos_;
    while (!take('}')) {
      skip_spaces();
      std::optional<JsonValue> key = next_is('"') || next_is('\'') ? read_string() : std::nullopt;
      if (!key || !take(':')) return std::nullopt;
      std::optional<JsonValue> value = read(depth + 1);
      if (!value) return std::nullopt;
      const auto [place, is_new] = places.try_emplace(key->text(), members.size());
      if (is_new) members.emplace_back(key->text(), JsonValue());
      members[place->second].second = *std::move(value);  // a repeated key: the last value stands
      if (!take(',') && !next_is('}')) return std::nullopt;
    }
    return JsonValue::object(std::move(members));
  }

  std::optional<JsonValue> read_string() {
    const char quote = text_[pos_++];
    std::string out;
    while (pos_ < text_.size()) {
      const char c = text_[pos_++];
      if (c == quote) return JsonValue::string(std::move(out));
      if (c == '\n') return std::nullopt;
      if (c != '\\') {
        out.push_back(c);
      } else if (!read_escape(&out)) {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  bool read_escape(std::string* out) {
    if (pos_ == text_.size()) return false;
    switch (const char c = text_[pos_++]) {
      case 'n':
        out->push_back('\n');
        return true;
      case 't':
        out->push_back('\t');
        return true;
      case 'r':
        out->push_back('\r');
        return true;
      case 'b':
        out->push_back('\b');
        return true;
      case 'f':
        out->push_back('\f');
        return true;
      case '0':
        out->push_back('\0');
        return true;
      case '\\':
      case '\'':
      case '"':
      case '/':
        out->push_back(c);
        return true;
      case 'x':
        return read_hex(2, out);
      case 'u':
        return read_hex(4, out);
      case 'U':
        return read_hex(8, out);
      default:
        return false;
    }
  }

  bool read_hex(size_t num_digits, std::string* out) {
    uint32_t code_point = 0;
    for (size_t i = 0; i < num_digits; ++i, ++pos_) {
      if (pos_ == text_.size()) return false;
      const char c = text_[pos_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return false;
      code_point = code_point << 4 | static_cast<uint32_t>(digit);
    }
    if (!is_scalar(code_point)) return false;
    append_utf8(code_point, out);
    return true;
  }

  std::optional<JsonValue> read_word() {
    const size_t start = pos_;
    while (pos_ < text_.size() && !is_ascii_space(text_[pos_]) &&
           std::string_view(",:]})").find(text_[pos_]) == std::string_view::npos) {
      ++pos_;
    }
    const std::string_view word = text_.substr(start, pos_ - start);
    if (word == "None" || word == "null") return JsonValue();
    if (word == "True" || word == "true") return JsonValue::boolean(true);
    if (word == "False" || word == "false") return JsonValue::boolean(false);
    Result<JsonValue> number = parse_json(word);
    if (!number.ok() || !number->is_number()) return std::nullopt;
    return *std::move(number);
  }

  void skip_spaces() {
    while (pos_ < text_.size() && is_ascii_space(text_[pos_])) ++pos_;
  }
  bool next_is(char c) {
    skip_spaces();
    return pos_ < text_.size() && text_[pos_] == c;
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++pos_;
    return true;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

Result<JsonValue> parse_python_literal(std::string_view text) {
  std::optional<JsonValue> value = LiteralReader(text).read_all();
  if (!value)
    return invalid_argument("no Python literal of plain values, or nested deeper than {}",
                            kMaxDepth);
  return *std::move(value);
}

}  // namespace sluice::chat
