#include "chat/piece_buffer.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
// Consumed text is let go in steps of this size, so that consuming stays linear.
constexpr size_t kCompactBytes = size_t{1} << 16;

struct Utf8Step {
  size_t num_bytes;  // of the character, of the invalid subpart, or of the unfinished rest
  enum { kValid, kInvalid, kUnfinished } verdict;
};

/// The range of the second byte narrows after some lead bytes (overlong forms, surrogates, above
/// U+10FFFF).
bool is_second_byte(unsigned char lead, unsigned char byte) {
  if (lead == 0xe0) return byte >= 0xa0 && byte <= 0xbf;
  if (lead == 0xed) return byte >= 0x80 && byte <= 0x9f;
  if (lead == 0xf0) return byte >= 0x90 && byte <= 0xbf;
  if (lead == 0xf4) return byte >= 0x80 && byte <= 0x8f;
  return byte >= 0x80 && byte <= 0xbf;
}

Utf8Step next_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, Utf8Step::kValid};
  if (lead < 0xc2 || lead > 0xf4) return {1, Utf8Step::kInvalid};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Utf8Step::kUnfinished};
    const bool is_good = i == 1 ? is_second_byte(lead, byte(1)) : (byte(i) & 0xc0) == 0x80;
    if (!is_good) return {i, Utf8Step::kInvalid};
  }
  return {length, Utf8Step::kValid};
}

}  // namespace

void PieceBuffer::append(std::string_view text, PieceKind kind) {
  text_.append(text);
  kinds_.append(text.size(), static_cast<char>(kind));
}

void PieceBuffer::push(std::string_view text, PieceKind kind) {
  if (kind == PieceKind::kControl && !partial_.empty()) {
    append(kReplacement, PieceKind::kOrdinary);
    partial_.clear();
  }
  std::string joined;
  if (!partial_.empty()) {
    joined = std::move(partial_) + std::string(text);
    partial_.clear();
    text = joined;
  }
  size_t start = 0;  // of the valid run
  size_t i = 0;
  while (i < text.size()) {
    const Utf8Step step = next_character(text.substr(i));
    if (step.verdict == Utf8Step::kValid) {
      i += step.num_bytes;
      continue;
    }
    append(text.substr(start, i - start), kind);
    if (step.verdict == Utf8Step::kUnfinished) {
      partial_ = text.substr(i);
      return;
    }
    append(kReplacement, kind);
    i += step.num_bytes;
    start = i;
  }
  append(text.substr(start), kind);
}

void PieceBuffer::finish() {
  if (!partial_.empty()) append(kReplacement, PieceKind::kUnknown);
  partial_.clear();
  is_finished_ = true;
}

void PieceBuffer::consume(size_t num_bytes) {
  if (recorder_ != nullptr) recorder_->append(text().substr(0, num_bytes));
  begin_ += num_bytes;
  if (begin_ == text_.size()) {
    text_.clear();
    kinds_.clear();
    begin_ = 0;
  } else if (begin_ > kCompactBytes && begin_ * 2 > text_.size()) {
    text_.erase(0, begin_);
    kinds_.erase(0, begin_);
    begin_ = 0;
  }
}

}  // namespace sluice::chat
