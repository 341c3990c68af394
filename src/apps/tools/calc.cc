#include "apps/tools/calc.h"

#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>

namespace sluice {
namespace {

using Integer = boost::multiprecision::cpp_int;
using Fraction = boost::multiprecision::cpp_rational;

/// total := product (("+" | "-") product)*     product := unary (("*" | "/") unary)*
/// unary := ("+" | "-") unary | "(" total ")" | number
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Fraction> parse() {
    SLUICE_ASSIGN_OR_RETURN(Fraction value, total());
    if (peek() != '\0') return bad();
    return value;
  }

 private:
  Status bad() const { return invalid_argument("bad expression: {}", text_); }

  /// The next character that is no white space; NUL at the end.
  char peek() {
    while (pos_ < text_.size() && is_blank(text_[pos_])) ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }

  static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  Result<Fraction> total() {
    SLUICE_ASSIGN_OR_RETURN(Fraction value, product());
    for (char op = peek(); op == '+' || op == '-'; op = peek()) {
      ++pos_;
      SLUICE_ASSIGN_OR_RETURN(const Fraction right, product());
      if (op == '+') {
        value += right;
      } else {
        value -= right;
      }
    }
    return value;
  }

  Result<Fraction> product() {
    SLUICE_ASSIGN_OR_RETURN(Fraction value, unary());
    for (char op = peek(); op == '*' || op == '/'; op = peek()) {
      ++pos_;
      SLUICE_ASSIGN_OR_RETURN(const Fraction right, unary());
      if (op == '*') {
        value *= right;
      } else if (right.is_zero()) {
        return invalid_argument("division by zero");
      } else {
        value /= right;
      }
    }
    return value;
  }

  Result<Fraction> unary() {
    if (depth_ >= kCalcDepthMax) return bad();
    ++depth_;
    Result<Fraction> value = operand();
    --depth_;
    return value;
  }

  Result<Fraction> operand() {
    const char c = peek();
    if (c == '+' || c == '-') {
      ++pos_;
      SLUICE_ASSIGN_OR_RETURN(Fraction value, unary());
      return c == '-' ? Fraction(-value) : value;
    }
    if (c != '(') return number();
    ++pos_;
    SLUICE_ASSIGN_OR_RETURN(Fraction value, total());
    if (peek() != ')') return bad();
    ++pos_;
    return value;
  }

  /// Digits with at most one point among or beside them.
  Result<Fraction> number() {
    std::string digits;
    size_t num_decimals = 0;
    bool point = false;
    for (; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      if (c == '.' && !point) {
        point = true;
      } else if (is_digit(c)) {
        digits += c;
        num_decimals += point ? 1 : 0;
      } else {
        break;
      }
    }
    if (digits.empty()) return bad();
    digits.erase(0, digits.find_first_not_of('0'));  // a leading zero would mean octal
    const Integer numerator(digits.empty() ? "0" : digits);
    const Integer scale =
        boost::multiprecision::pow(Integer(10), static_cast<unsigned>(num_decimals));
    return Fraction(numerator, scale);
  }

  std::string_view text_;
  size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<std::string> calc(std::string_view expression) {
  if (expression.size() > kCalcBytesMax) {
    return invalid_argument("bad expression: over {} bytes", kCalcBytesMax);
  }
  if (expression.find('\0') != expression.npos) return invalid_argument("bad expression: NUL byte");
  SLUICE_ASSIGN_OR_RETURN(const Fraction value, Parser(expression).parse());
  if (denominator(value) == 1) return numerator(value).str();
  const double nearest = value.convert_to<double>();
  if (!std::isfinite(nearest)) return invalid_argument("result too large");
  return fmt::format("{:.12g}", nearest);
}

}  // namespace sluice
