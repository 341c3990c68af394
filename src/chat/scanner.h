#pragma once
// Looks ahead in the undecided text for the tags of the call syntax. An answer, once given, stays
// true however the text goes on; kMore means that it does not follow yet. That is what makes
// parsing independent of the cuts.

#include <initializer_list>

#include "chat/piece_buffer.h"

namespace sluice::chat {

enum class Match { kNo, kYes, kMore };

inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kCallOpen = "<tool_call>";
inline constexpr std::string_view kCallClose = "</tool_call>";
inline constexpr std::string_view kFunctionOpen = "<function=";
inline constexpr std::string_view kFunctionClose = "</function>";
inline constexpr std::string_view kParameterOpen = "<parameter=";
inline constexpr std::string_view kParameterClose = "</parameter>";

/// White space tolerated between two tags.
inline constexpr size_t kMaxGapBytes = 64;
inline constexpr size_t kMaxNameBytes = 256;

/// A reading position that moves only over what matched.
class Scanner {
 public:
  Scanner(const PieceBuffer& in, size_t pos) : in_(&in), pos_(pos) {}

  size_t pos() const { return pos_; }
  bool at_end() const { return pos_ == in_->text().size(); }
  /// Nothing follows and nothing will.
  bool at_final_end() const { return at_end() && in_->is_finished(); }
  PieceKind kind() const { return in_->kind_at(pos_); }
  char peek() const { return in_->text()[pos_]; }

  Match literal(std::string_view tag);
  /// Up to kMaxGapBytes of white space, none included; never kNo.
  Match gap();
  /// A name and the '>' behind it; spaces around the name are dropped. kNo: a newline, '<', no
  /// name, or too long.
  Match name(std::string_view* name);
  /// What name() would read so far, without spaces around it.
  std::string_view partial_name() const;
  /// The text has ended, here or inside `tag`.
  bool is_cut_tag(std::string_view tag) const;
  /// The text has ended inside a name.
  bool is_cut_name() const;

 private:
  const PieceBuffer* in_;
  size_t pos_;
};

/// Of alternatives: kYes if one is, else kMore if one is.
inline Match any_of(std::initializer_list<Match> matches) {
  Match best = Match::kNo;
  for (const Match match : matches) {
    if (match == Match::kYes) return match;
    if (match == Match::kMore) best = match;
  }
  return best;
}

}  // namespace sluice::chat
