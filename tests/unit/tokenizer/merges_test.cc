#include "tokenizer/merges.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>

namespace sluice {
namespace {

// The definition: the lowest rank, the leftmost among equals, one at a time. Pre: ids are below kIdEnd.
constexpr int32_t kIdEnd = 512;
std::vector<int32_t> merged_by_definition(const std::vector<Merge>& merges,
                                          std::vector<int32_t> ids) {
  std::vector<size_t> ranks(kIdEnd * kIdEnd, merges.size());
  for (size_t i = 0; i < merges.size(); ++i)
    ranks[static_cast<size_t>(merges[i].left * kIdEnd + merges[i].right)] = i;
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const size_t rank = ranks[static_cast<size_t>(ids[i] * kIdEnd + ids[i + 1])];
      if (rank < best) {
        best = rank;
        at = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

std::vector<int32_t> bytes_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

// Ids as in most vocabularies: a byte is its own id, merges make the ids from 256 on.
std::vector<int32_t> byte_ids() {
  std::vector<int32_t> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Bytes of the ids of byte_ids() and `merges`.
TokenBytes tokens_of(const std::vector<Merge>& merges) {
  std::map<int32_t, std::string> bytes;
  for (int32_t byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<char>(byte);
  std::map<int32_t, Merge> by_result;
  for (const Merge& merge : merges) by_result[merge.result] = merge;
  for (const auto& [id, merge] : by_result) bytes[id] = bytes[merge.left] + bytes[merge.right];
  TokenBytes tokens;
  for (const auto& [id, text] : bytes) tokens.push_back(text);
  return tokens;
}

MergeTable table_of(const std::vector<Merge>& merges) {
  return MergeTable(merges, byte_ids(), tokens_of(merges));
}

// Random merges of `symbols`, each naming what came before it.
std::vector<Merge> random_merges(std::mt19937* rng, int count, std::vector<int32_t> symbols) {
  std::vector<Merge> merges;
  std::map<std::pair<int32_t, int32_t>, bool> seen;
  while (static_cast<int>(merges.size()) < count) {
    const int32_t left = symbols[(*rng)() % symbols.size()];
    const int32_t right = symbols[(*rng)() % symbols.size()];
    if (!seen.try_emplace({left, right}, true).second) continue;
    symbols.push_back(static_cast<int32_t>(256 + merges.size()));
    merges.push_back({left, right, symbols.back()});
  }
  std::shuffle(merges.begin(), merges.end(), *rng);  // a rank need not follow what it is made of
  return merges;
}

TEST(Merges, FollowTheDefinitionAtEveryLength) {
  std::mt19937 rng(7);
  for (int round = 0; round < 40; ++round) {
    const std::vector<Merge> merges = random_merges(&rng, 30, {'a', 'b', 'c'});
    const MergeTable table = table_of(merges);
    MergeScratch scratch;
    for (size_t length = 0; length < 110; length += 1 + length / 40) {
      std::string chunk(length, 'a');
      for (char& c : chunk) c = static_cast<char>('a' + rng() % 3);
      table.apply(chunk, &scratch);
      ASSERT_EQ(scratch.ids, merged_by_definition(merges, {chunk.begin(), chunk.end()})) << chunk;
    }
  }
}

// Long chunks are merged window by window; every third table has few merges, so that tokens stay short and windows many.
TEST(Merges, WindowsJoinToTheWhole) {
  std::mt19937 rng(11);
  for (int round = 0; round < 60; ++round) {
    const std::vector<Merge> merges = random_merges(&rng, round % 3 == 0 ? 6 : 40, {'a', 'b'});
    const MergeTable table = table_of(merges);
    MergeScratch scratch;
    std::string chunk;
    const size_t period = 1 + rng() % 7;
    for (size_t i = 0; i < 900 + rng() % 2600; ++i) {
      chunk.push_back(round % 2 == 0 && i >= period ? chunk[i - period]
                                                    : static_cast<char>('a' + rng() % 2));
    }
    table.apply(chunk, &scratch);
    ASSERT_EQ(scratch.ids, merged_by_definition(merges, bytes_of(chunk))) << chunk;
  }
}

// Pairs of neighbouring bytes, the last pair first: how a run pairs up is decided at its right end, which a window may
// not see yet. Then what it took for certain is taken back.
TEST(Merges, AWindowGoesBackAsFarAsItMust) {
  std::mt19937 rng(17);
  std::vector<Merge> merges;
  for (int32_t byte = 120; byte > 1; --byte) {
    merges.push_back({byte - 1, byte, static_cast<int32_t>(256 + merges.size())});
  }
  const MergeTable table = table_of(merges);
  MergeScratch scratch;
  for (int round = 0; round < 30; ++round) {
    std::string chunk;
    while (chunk.size() < 3500) {
      const auto last = static_cast<char>(60 + rng() % 60);
      for (char byte = 1; byte <= last; ++byte) chunk.push_back(byte);
    }
    table.apply(chunk, &scratch);
    ASSERT_EQ(scratch.ids, merged_by_definition(merges, bytes_of(chunk))) << round;
  }
}

const std::vector<std::string> kCharacters = {"a",      " ",      "\u00e9", "\u00e8",
                                              "\u4f60", "\u4f61", "\u597d", "\U0001f680"};

// Merges over characters of one to four bytes, of which many merge into one id inside: those may be atoms.
std::vector<Merge> character_merges(std::mt19937* rng) {
  std::vector<Merge> merges;
  std::vector<int32_t> symbols;
  std::map<std::pair<int32_t, int32_t>, int32_t> result;
  const auto add = [&](int32_t left, int32_t right) {
    const auto [at, is_new] =
        result.try_emplace({left, right}, static_cast<int32_t>(256 + merges.size()));
    if (is_new) merges.push_back({left, right, at->second});
    return at->second;
  };
  for (const std::string& character : kCharacters) {
    std::vector<int32_t> bytes = bytes_of(character);
    symbols.insert(symbols.end(), bytes.begin(),
                   rng->operator()() % 4 == 0 ? bytes.end() : bytes.begin() + 1);
    if ((*rng)() % 4 == 0) continue;
    while (bytes.size() > 1) {
      bytes[0] = add(bytes[0], bytes[1]);
      bytes.erase(bytes.begin() + 1);
    }
    symbols.push_back(bytes[0]);
  }
  const size_t num_inner = merges.size();
  for (int i = 0; i < 25; ++i) {
    symbols.push_back(add(symbols[(*rng)() % symbols.size()], symbols[(*rng)() % symbols.size()]));
  }
  // Most vocabularies merge inside characters first; some tables here do not.
  std::shuffle(
      (*rng)() % 3 == 0 ? merges.begin() : merges.begin() + static_cast<ptrdiff_t>(num_inner),
      merges.end(), *rng);
  return merges;
}

TEST(Merges, AtomsChangeNothing) {
  std::mt19937 rng(13);
  size_t num_atoms = 0, num_after_ascii = 0;
  for (int round = 0; round < 100; ++round) {
    const std::vector<Merge> merges = character_merges(&rng);
    const MergeTable table = table_of(merges);
    const Atoms atoms(merges, byte_ids(), tokens_of(merges), PairRanks(merges));
    for (const char32_t c : {U'\u00e9', U'\u00e8', U'\u4f60', U'\u4f61', U'\u597d'}) {
      num_atoms += atoms.find(c, false) >= 0 ? 1 : 0;
      num_after_ascii += atoms.find(c, true) >= 0 ? 1 : 0;
    }
    MergeScratch scratch;
    for (int i = 0; i < 40; ++i) {
      std::string chunk;
      for (size_t length = rng() % 20; length > 0; --length)
        chunk += kCharacters[rng() % kCharacters.size()];
      if (i % 8 == 0) chunk.push_back('\xE4');  // not UTF-8
      table.apply(chunk, &scratch);
      ASSERT_EQ(scratch.ids, merged_by_definition(merges, bytes_of(chunk))) << chunk;
    }
  }
  EXPECT_GT(num_atoms, 50U);  // or nothing was tested
  EXPECT_GT(num_atoms, num_after_ascii);
}

// What keeps U+4F60 (E4 BD A0) from being an atom, one merge at a time.
TEST(Atoms, AreRefusedWhereAnotherMergeCouldComeFirst) {
  const std::vector<Merge> inner = {{0xE4, 0xBD, 256}, {256, 0xA0, 257}};
  const auto find = [&](std::vector<Merge> merges, bool after_ascii) {
    return Atoms(merges, byte_ids(), tokens_of(merges), PairRanks(merges))
        .find(U'\u4f60', after_ascii);
  };
  EXPECT_EQ(find(inner, true), 257);
  EXPECT_EQ(find({inner[0]}, false), -1);                             // more than one id
  EXPECT_EQ(find({inner[0], inner[1], {257, 'a', 258}}, true), 257);  // taken whole, later
  EXPECT_EQ(find({inner[0], {257, 'a', 258}, inner[1]}, false),
            -1);  // taken whole, but of lower rank
  EXPECT_EQ(find({inner[0], inner[1], {' ', 0xE4, 258}}, false), 257);  // its head behind ASCII
  EXPECT_EQ(find({inner[0], inner[1], {' ', 0xE4, 258}}, true), -1);
  EXPECT_EQ(find({inner[0], inner[1], {0xA9, 0xE4, 258}}, false), -1);  // its head behind others
  EXPECT_EQ(find({inner[0], inner[1], {0xA0, 'a', 258}}, false), -1);   // its tail
  EXPECT_EQ(find({{0xBD, 0xA0, 258}, {258, 'a', 259}, inner[0], inner[1]}, false), -1);
  EXPECT_EQ(find({inner[0], inner[1], {0xA1, 'a', 258}}, false), 257);  // another's tail
}

TEST(Merges, EqualRanksGoLeftFirst) {
  const MergeTable table = table_of({{'a', 'a', 256}});
  MergeScratch scratch;
  for (size_t length : {3, 47, 48, 49, 101}) {
    table.apply(std::string(length, 'a'), &scratch);
    std::vector<int32_t> expected(length / 2, 256);
    if (length % 2 != 0) expected.push_back('a');
    EXPECT_EQ(scratch.ids, expected) << length;
  }
}

// Counted, not timed: ten times the text takes ten times the steps. One heap over the whole would fail: its height counts.
TEST(Merges, StepsGrowWithTheLength) {
  std::vector<Merge> doubling = {
      {'a', 'a', 256}};  // 2, 4, ... 128 letters, as spaces in real vocabularies
  for (int32_t i = 256; i < 262; ++i) doubling.push_back({i, i, i + 1});
  std::mt19937 rng(19);
  const std::vector<Merge> mixed = random_merges(&rng, 40, {'a', 'b', 'c'});
  const auto steps_for = [](const std::vector<Merge>& merges, std::string_view unit,
                            size_t length) {
    std::string chunk;
    while (chunk.size() < length) chunk += unit;
    MergeScratch scratch;
    table_of(merges).apply(chunk, &scratch);
    return static_cast<double>(scratch.num_steps) / static_cast<double>(chunk.size());
  };
  for (const std::string_view unit : {"a", "ab", "abcacb", "aabbbcabcbcaacb"}) {
    for (const auto& merges : {doubling, mixed}) {
      const double few = steps_for(merges, unit, 30'000);
      EXPECT_LE(few, 100.0) << unit;
      EXPECT_LE(steps_for(merges, unit, 300'000), 1.05 * few) << unit;
    }
  }
}

}  // namespace
}  // namespace sluice
