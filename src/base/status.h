#pragma once
// Expected failures: a value or a Status that says what was expected, what was found and what to
// do. Bugs are SLUICE_CHECK's (check.h); exceptions never cross a folder.

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace sluice {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the caller's input is wrong
  kNotFound,           // a named thing does not exist
  kDataLoss,           // a file is truncated, corrupt or contradicts itself
  kResourceExhausted,  // a stated limit was reached; the message names the limit and its flag
  kUnsupported,        // valid, but this build, backend or machine cannot do it
  kIo,                 // the operating system refused
  kCancelled,          // stopped on request
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// Same code, with "context: " before the message.
  Status with_context(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

#define SLUICE_STATUS_FACTORY(name, code)                                              \
  template <typename... Args>                                                          \
  Status name(fmt::format_string<Args...> format, Args&&... args) {                    \
    return Status(StatusCode::code, fmt::format(format, std::forward<Args>(args)...)); \
  }
SLUICE_STATUS_FACTORY(invalid_argument, kInvalidArgument)
SLUICE_STATUS_FACTORY(not_found, kNotFound)
SLUICE_STATUS_FACTORY(data_loss, kDataLoss)
SLUICE_STATUS_FACTORY(resource_exhausted, kResourceExhausted)
SLUICE_STATUS_FACTORY(unsupported, kUnsupported)
SLUICE_STATUS_FACTORY(io_error, kIo)
SLUICE_STATUS_FACTORY(cancelled, kCancelled)
#undef SLUICE_STATUS_FACTORY

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    SLUICE_CHECK(!status_.ok());
  }
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    SLUICE_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    SLUICE_CHECK(ok());
    return *value_;
  }
  T value() && {  // by value: a reference into a temporary Result would dangle
    SLUICE_CHECK(ok());
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace sluice

#define SLUICE_CONCAT_INNER(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_INNER(a, b)
#define SLUICE_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                         \
    if (::sluice::Status sluice_status_ = (expr); !sluice_status_.ok()) return sluice_status_; \
  } while (false)
#define SLUICE_ASSIGN_OR_RETURN(decl, expr) \
  SLUICE_ASSIGN_OR_RETURN_IMPL(SLUICE_CONCAT(sluice_result_, __LINE__), decl, expr)
#define SLUICE_ASSIGN_OR_RETURN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) return tmp.status();                 \
  decl = std::move(tmp).value()
