#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"

namespace sluice {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    SLUICE_CHECK(!token.content.empty());
    starts_[static_cast<unsigned char>(token.content[0])] = true;
    int32_t node = 0;
    for (const char byte : token.content) {
      int32_t below = child(node, byte);
      if (below < 0) {
        below = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({-1, nodes_[static_cast<size_t>(node)].first_child, -1, byte});
        nodes_[static_cast<size_t>(node)].first_child = below;
      }
      node = below;
    }
    SLUICE_CHECK_EQ(nodes_[static_cast<size_t>(node)].id, -1);
    nodes_[static_cast<size_t>(node)].id = token.id;
  }
  if (std::ranges::count(starts_, true) == 1) {
    single_start_ = static_cast<int>(std::ranges::find(starts_, true) - starts_.begin());
  }
}

int32_t AddedTokenMatcher::child(int32_t node, char byte) const {
  int32_t at = nodes_[static_cast<size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].byte != byte) {
    at = nodes_[static_cast<size_t>(at)].next_sibling;
  }
  return at;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t pos) const {
  Match match{text.size(), 0, -1};
  int32_t node = 0;
  for (size_t end = pos; end < text.size(); ++end) {
    node = child(node, text[end]);
    if (node < 0) break;
    if (nodes_[static_cast<size_t>(node)].id >= 0) {
      match = {pos, end + 1 - pos, nodes_[static_cast<size_t>(node)].id};
    }
  }
  return match;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t pos) const {
  for (; pos < text.size(); ++pos) {
    if (single_start_ >= 0) {
      pos = text.find(static_cast<char>(single_start_), pos);
      if (pos == std::string_view::npos) break;
    } else if (!starts_[static_cast<unsigned char>(text[pos])]) {
      continue;
    }
    if (const Match match = longest_at(text, pos); match.length > 0) return match;
  }
  return {text.size(), 0, -1};
}

}  // namespace sluice
