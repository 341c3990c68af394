#pragma once

#include <cstdint>
#include <vector>

#include "chat/render.h"
#include "tokenizer/tokenizer.h"

namespace sluice {

/// Ids of a rendered prompt. Added tokens come from trusted segments only; between two of them the
/// text is encoded as a whole across segments, as an encoder of the joined text does ("." and the
/// newline behind it are one chunk, whoever wrote them). "<|im_end|>" in a message or a tool's
/// result is ordinary text and can end nothing.
std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const chat::Prompt& prompt);

}  // namespace sluice
