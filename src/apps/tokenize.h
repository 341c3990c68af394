#pragma once

#include <string>

#include "apps/model_flags.h"

namespace sluice {

/// `sluice tokenize`: text to ids or back, with a checkpoint's tokenizer alone.
struct TokenizeOptions {
  ModelFlags model;
  std::string text;
  std::string file;  // the text, instead; "-" is standard input
  bool ignore_added = false;
  bool decode = false;  // the text is ids
  bool show = false;    // one line a token: id and its bytes as a JSON string
};
int run_tokenize(const TokenizeOptions& options);

}  // namespace sluice
