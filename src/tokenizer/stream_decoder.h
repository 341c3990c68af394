#pragma once
// Ids to text while they arrive: never a part of a code point.

#include <cstdint>
#include <string>

#include "tokenizer/tokenizer.h"

namespace sluice {

/// Joined, what push() and finish() append is what Tokenizer::decode gives for all ids at once. Bytes that may still
/// become a code point (three at most) are held back; what can no longer become one is U+FFFD at once.
/// The tokenizer must outlive this.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
      : tokenizer_(&tokenizer), options_(options) {}

  /// Appends the text that is certain now. kInvalidArgument, with nothing changed, for an id without text.
  Status push(int32_t id, std::string* out);
  /// Appends U+FFFD when the stream ended inside a code point; ready for another stream then.
  void finish(std::string* out);
  /// Bytes held back. An added token that is not skipped ends what was held, as any other bytes do.
  size_t num_pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string pending_;
};

}  // namespace sluice
