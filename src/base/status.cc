#include "base/status.h"

namespace sluice {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kDataLoss:
      return "data loss";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kIo:
      return "io";
    case StatusCode::kCancelled:
      return "cancelled";
  }
  SLUICE_CHECK(false);
  return "";
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, fmt::format("{}: {}", context, message_));
}

}  // namespace sluice
