#include "tokenizer/merges.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>

namespace sluice {
namespace {

// The definition: the lowest rank, the leftmost among equals, one at a time.
std::vector<int32_t> merged_by_definition(const std::vector<Merge>& merges,
                                          std::vector<int32_t> ids) {
  std::map<std::pair<int32_t, int32_t>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[{merges[i].left, merges[i].right}] = i;
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Ids as in most vocabularies: a byte is its own id, merges make the ids from 256 on.
std::vector<int32_t> byte_ids() {
  std::vector<int32_t> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// Random merges over the letters a, b and c, each naming what came before it.
std::vector<Merge> random_merges(std::mt19937* rng, int count) {
  std::vector<Merge> merges;
  std::vector<int32_t> symbols = {'a', 'b', 'c'};
  std::map<std::pair<int32_t, int32_t>, bool> seen;
  while (static_cast<int>(merges.size()) < count) {
    const int32_t left = symbols[(*rng)() % symbols.size()];
    const int32_t right = symbols[(*rng)() % symbols.size()];
    if (!seen.try_emplace({left, right}, true).second) continue;
    symbols.push_back(static_cast<int32_t>(253 + symbols.size()));
    merges.push_back({left, right, symbols.back()});
  }
  std::shuffle(merges.begin(), merges.end(), *rng);  // a rank need not follow what it is made of
  return merges;
}

TEST(Merges, FollowTheDefinitionAtEveryLength) {
  std::mt19937 rng(7);
  for (int round = 0; round < 40; ++round) {
    const std::vector<Merge> merges = random_merges(&rng, 30);
    const MergeTable table(merges, byte_ids());
    MergeScratch scratch;
    for (size_t length = 0; length < 110; length += 1 + length / 40) {
      std::string chunk(length, 'a');
      for (char& c : chunk) c = static_cast<char>('a' + rng() % 3);
      table.apply(chunk, &scratch);
      ASSERT_EQ(scratch.ids, merged_by_definition(merges, {chunk.begin(), chunk.end()})) << chunk;
    }
  }
}

TEST(Merges, EqualRanksGoLeftFirst) {
  const MergeTable table({{'a', 'a', 256}}, byte_ids());
  MergeScratch scratch;
  for (size_t length : {3, 47, 48, 49, 101}) {
    table.apply(std::string(length, 'a'), &scratch);
    std::vector<int32_t> expected(length / 2, 256);
    if (length % 2 != 0) expected.push_back('a');
    EXPECT_EQ(scratch.ids, expected) << length;
  }
}

TEST(Merges, StepsGrowAsNTimesAFew) {
  std::vector<Merge> merges = {{'a', 'a', 256}};  // doubling: 2, 4, ... 1024 letters
  for (int32_t i = 256; i < 265; ++i) merges.push_back({i, i, i + 1});
  const MergeTable table(merges, byte_ids());
  for (const size_t length : {size_t{48}, size_t{1000}, size_t{100'000}, size_t{2'000'000}}) {
    MergeScratch scratch;
    table.apply(std::string(length, 'a'), &scratch);
    EXPECT_EQ(scratch.ids[0], length >= 1024 ? 265 : length >= 512 ? 264 : 260);
    EXPECT_LE(scratch.num_steps, 48 * length)
        << length;  // quadratic would be `length` times `length`
  }
}

}  // namespace
}  // namespace sluice
