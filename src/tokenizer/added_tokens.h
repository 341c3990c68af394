#pragma once
// Finds added tokens in raw text: the leftmost, and the longest that starts there.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct AddedToken {
  int32_t id;
  std::string content;
  bool special;  // skipped by DecodeOptions::skip_special
};

class AddedTokenMatcher {
 public:
  /// Pre: contents are not empty and differ.
  explicit AddedTokenMatcher(const std::vector<AddedToken>& tokens);

  struct Match {
    size_t begin;   // text.size() when there is none
    size_t length;  // 0 when there is none
    int32_t id;
  };
  /// Cost: at most the longest content's length for each byte that starts some content.
  Match find(std::string_view text, size_t pos) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t id = -1;  // -1: no content ends here
    char byte = 0;
  };

  int32_t child(int32_t node, char byte) const;
  Match longest_at(std::string_view text, size_t pos) const;

  std::vector<Node> nodes_;  // a trie; 0 is the root
  std::array<bool, 256> starts_{};
  int single_start_ = -1;  // the byte, when all contents start alike
};

}  // namespace sluice
