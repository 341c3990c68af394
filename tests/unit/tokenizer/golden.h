#pragma once
// The small tokenizer of tests/golden/tokenizer, for the tests of this folder.

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace sluice {

inline constexpr int32_t kGoldenBase = 940;     // base tokens of the small tokenizer
inline constexpr int32_t kGoldenDefined = 950;  // with added tokens

inline Path golden_dir() {
  return Path(SLUICE_SOURCE_DIR) / "tests/golden/tokenizer";
}

inline Tokenizer load_golden(const TokenizerOptions& options) {
  auto tokenizer = Tokenizer::load(golden_dir(), options);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

}  // namespace sluice
