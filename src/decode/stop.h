#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;
};

/// Natural-log probabilities from the raw logits (before penalties and temperature), over defined ids.
struct TokenLogprobs {
  bool present = false;
  float drawn = 0.0f;
  std::vector<TokenLogprob> top;
};

/// Finds stop strings across token borders. Text goes in as it is decoded; what can no longer be part of a
/// stop string comes out. A match ends the text before the stop string.
class StopStringMatcher {
 public:
  static constexpr size_t kMaxStrings = 16;
  static constexpr size_t kMaxBytes = 1024;

  StopStringMatcher() = default;
  /// kInvalidArgument for an empty string, too many, or one that is too long.
  static Result<StopStringMatcher> create(std::vector<std::string> stop_strings);

  /// Appends releasable text to `out`. True when a stop string is complete: nothing more comes out after that.
  bool push(std::string_view text, std::string* out);
  /// The end of generation: what was held back is text after all.
  void finish(std::string* out);

 private:
  std::vector<std::string> stop_strings_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace sluice
