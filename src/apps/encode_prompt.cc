#include "apps/encode_prompt.h"

#include <string>

namespace sluice {
namespace {

class PromptEncoder {
 public:
  explicit PromptEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void push_plain(std::string_view text) { plain_ += text; }

  void push_trusted(std::string_view text) {
    for (const int32_t id : tokenizer_.encode(text, AddedTokens::kMatch)) {
      if (!tokenizer_.is_added(id)) continue;
      // Added tokens are matched leftmost first, so the next one is the first with its bytes.
      const std::string_view content = tokenizer_.token_bytes(id);
      const size_t start = text.find(content);
      SLUICE_CHECK_NE(start, text.npos);
      push_plain(text.substr(0, start));
      flush();
      ids_.push_back(id);
      text.remove_prefix(start + content.size());
    }
    push_plain(text);
  }

  std::vector<int32_t> finish() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    tokenizer_.encode_append(plain_, AddedTokens::kIgnore, &ids_);
    plain_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string plain_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const chat::Prompt& prompt) {
  PromptEncoder encoder(tokenizer);
  for (const chat::Segment& segment : prompt.segments) {
    if (segment.trusted) {
      encoder.push_trusted(segment.text);
    } else {
      encoder.push_plain(segment.text);
    }
  }
  return encoder.finish();
}

}  // namespace sluice
