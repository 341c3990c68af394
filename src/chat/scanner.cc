#include "chat/scanner.h"

#include "chat/text.h"

namespace sluice::chat {

Match Scanner::literal(std::string_view tag) {
  const std::string_view rest = in_->text().substr(pos_);
  if (rest.starts_with(tag)) {
    pos_ += tag.size();
    return Match::kYes;
  }
  return tag.starts_with(rest) && !in_->is_finished() ? Match::kMore : Match::kNo;
}

Match Scanner::gap() {
  const std::string_view text = in_->text();
  const size_t limit = pos_ + kMaxGapBytes;
  while (pos_ < text.size() && pos_ < limit && is_ascii_space(text[pos_])) ++pos_;
  return at_end() && pos_ < limit && !in_->is_finished() ? Match::kMore : Match::kYes;
}

Match Scanner::name(std::string_view* name) {
  const std::string_view rest = in_->text().substr(pos_, kMaxNameBytes + 1);
  const size_t end = rest.find_first_of(">\n<");
  if (end == std::string_view::npos) {
    return rest.size() > kMaxNameBytes || in_->is_finished() ? Match::kNo : Match::kMore;
  }
  *name = strip_ascii(rest.substr(0, end));
  if (rest[end] != '>' || name->empty()) return Match::kNo;
  pos_ += end + 1;
  return Match::kYes;
}

std::string_view Scanner::partial_name() const {
  const std::string_view rest = in_->text().substr(pos_, kMaxNameBytes);
  return strip_ascii(rest.substr(0, rest.find_first_of(">\n<")));
}

bool Scanner::is_cut_tag(std::string_view tag) const {
  const std::string_view rest = in_->text().substr(pos_);
  return in_->is_finished() && rest.size() < tag.size() && tag.starts_with(rest);
}

bool Scanner::is_cut_name() const {
  const std::string_view rest = in_->text().substr(pos_);
  return in_->is_finished() && rest.size() <= kMaxNameBytes &&
         rest.find_first_of(">\n<") == std::string_view::npos;
}

}  // namespace sluice::chat
