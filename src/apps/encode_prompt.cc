#include "apps/encode_prompt.h"

namespace sluice {

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const chat::Prompt& prompt) {
  std::vector<TextPiece> pieces;
  pieces.reserve(prompt.segments.size());
  for (const chat::Segment& segment : prompt.segments) {
    pieces.push_back({segment.text, segment.trusted ? AddedTokens::kMatch : AddedTokens::kIgnore});
  }
  std::vector<int32_t> ids;
  tokenizer.encode_pieces(pieces, &ids);
  return ids;
}

}  // namespace sluice
