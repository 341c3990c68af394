#include "chat/piece_buffer.h"

#include "base/utf8.h"

namespace sluice::chat {
namespace {

// Consumed text is let go in steps of this size, so that consuming stays linear.
constexpr size_t kCompactBytes = size_t{1} << 16;

}  // namespace

void PieceBuffer::append(std::string_view text, PieceKind kind) {
  text_.append(text);
  kinds_.append(text.size(), static_cast<char>(kind));
}

void PieceBuffer::push(std::string_view text, PieceKind kind) {
  if (kind == PieceKind::kControl && !partial_.empty()) {
    append(kReplacementCharacter, PieceKind::kOrdinary);
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
    const Utf8Step step = utf8_step(text, i);
    if (step.kind == Utf8Step::Kind::kScalar) {
      i += step.length;
      continue;
    }
    append(text.substr(start, i - start), kind);
    if (step.kind == Utf8Step::Kind::kTruncated) {
      partial_ = text.substr(i);
      return;
    }
    append(kReplacementCharacter, kind);
    i += step.length;
    start = i;
  }
  append(text.substr(start), kind);
}

void PieceBuffer::finish() {
  if (!partial_.empty()) append(kReplacementCharacter, PieceKind::kUnknown);
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
