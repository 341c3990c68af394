#pragma once
// Checks for bugs: always on, print both sides, stop the process. A wrong token is worse than none.

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sluice {

[[noreturn]] void check_failed(const char* file, int line, std::string_view what);

namespace internal {
template <typename A, typename B>
[[noreturn]] void check_op_failed(const char* file, int line, const char* expr, const A& a,
                                  const B& b) {
  check_failed(file, line, fmt::format("{} ({} against {})", expr, a, b));
}
}  // namespace internal

}  // namespace sluice

#define SLUICE_CHECK(cond)                                          \
  do {                                                              \
    if (!(cond)) ::sluice::check_failed(__FILE__, __LINE__, #cond); \
  } while (false)

#define SLUICE_CHECK_OP(a, op, b)                                                          \
  do {                                                                                     \
    const auto& check_a_ = (a);                                                            \
    const auto& check_b_ = (b);                                                            \
    if (!(check_a_ op check_b_))                                                           \
      ::sluice::internal::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, check_a_, \
                                          check_b_);                                       \
  } while (false)
#define SLUICE_CHECK_EQ(a, b) SLUICE_CHECK_OP(a, ==, b)
#define SLUICE_CHECK_NE(a, b) SLUICE_CHECK_OP(a, !=, b)
#define SLUICE_CHECK_LE(a, b) SLUICE_CHECK_OP(a, <=, b)
#define SLUICE_CHECK_LT(a, b) SLUICE_CHECK_OP(a, <, b)
#define SLUICE_CHECK_GE(a, b) SLUICE_CHECK_OP(a, >=, b)
#define SLUICE_CHECK_GT(a, b) SLUICE_CHECK_OP(a, >, b)
