#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/model_flags.h"

namespace sluice {

/// `sluice run`: one completion on standard output, figures on standard error.
struct RunPromptOptions {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt;
  /// The prompt is one user message; otherwise it is raw text, in which "<|im_start|>" is a token.
  bool as_chat = false;
  std::optional<bool> enable_thinking;
  /// "1 2,3": the prompt as ids; the output is ids too, and the model needs no tokenizer.
  std::string ids;
  /// One JSON line a token instead of text, with this many most likely ones. -1: off.
  int32_t num_logprobs = -1;
  int64_t max_tokens = 256;
  std::vector<std::string> stop_strings;
  bool ignore_model_stops = false;
};
int run_prompt(const RunPromptOptions& options);

/// Ids in decimal, separated by spaces or commas. kInvalidArgument names the piece that is none.
Result<std::vector<int32_t>> parse_ids(std::string_view text);

}  // namespace sluice
