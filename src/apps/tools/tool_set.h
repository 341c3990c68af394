#pragma once
// What an agent can call: schemas for the prompt, and a run for each call.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "chat/message.h"

namespace sluice {

struct ToolResult {
  /// Valid UTF-8; begins with "error: " when `failed`.
  std::string text;
  bool failed = false;
};

/// Tools in the order of the prompt. Whatever a model calls, and however, the answer is a ToolResult
/// that tells it what was wrong.
class ToolSet {
 public:
  /// `arguments` is an object that holds every parameter the schema requires. The text of a Status
  /// is what the model reads after "error: ".
  using Run = std::function<Result<std::string>(const JsonValue& arguments)>;

  /// kInvalidArgument for a name that is already there.
  Status add(chat::ToolSpec spec, Run run);

  const std::vector<chat::ToolSpec>& specs() const { return specs_; }
  ToolResult run(std::string_view name, const JsonValue& arguments) const;

 private:
  std::vector<chat::ToolSpec> specs_;
  std::vector<Run> runs_;
};

/// A string parameter; a number is taken as it is spelled. "" when it is absent.
Result<std::string> text_argument(const JsonValue& arguments, std::string_view name);
/// An integer parameter, `fallback` when it is absent.
Result<int64_t> integer_argument(const JsonValue& arguments, std::string_view name,
                                 int64_t fallback);

}  // namespace sluice
