#include "tokenizer/merges.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

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

// Random merges over three symbols, each naming what came before it.
std::vector<Merge> random_merges(std::mt19937* rng, int count) {
  std::vector<Merge> merges;
  std::map<std::pair<int32_t, int32_t>, bool> seen;
  int32_t next = 3;
  while (static_cast<int>(merges.size()) < count) {
    const auto left = static_cast<int32_t>((*rng)() % static_cast<uint32_t>(next));
    const auto right = static_cast<int32_t>((*rng)() % static_cast<uint32_t>(next));
    if (!seen.try_emplace({left, right}, true).second) continue;
    merges.push_back({left, right, next++});
  }
  std::shuffle(merges.begin(), merges.end(), *rng);  // a rank need not follow what it is made of
  return merges;
}

TEST(Merges, FollowTheDefinitionAtEveryLength) {
  std::mt19937 rng(7);
  for (int round = 0; round < 40; ++round) {
    const std::vector<Merge> merges = random_merges(&rng, 30);
    const MergeTable table(merges);
    MergeScratch scratch;
    for (size_t length = 0; length < 110; length += 1 + length / 40) {
      std::vector<int32_t> ids(length);
      for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 3);
      scratch.ids = ids;
      table.apply(&scratch);
      ASSERT_EQ(scratch.ids, merged_by_definition(merges, ids)) << "length " << length;
    }
  }
}

TEST(Merges, EqualRanksGoLeftFirst) {
  const MergeTable table({{0, 0, 1}});
  MergeScratch scratch;
  for (size_t length : {3, 47, 48, 49, 101}) {
    scratch.ids.assign(length, 0);
    table.apply(&scratch);
    std::vector<int32_t> expected(length / 2, 1);
    if (length % 2 != 0) expected.push_back(0);
    EXPECT_EQ(scratch.ids, expected) << length;
  }
}

TEST(Merges, StepsGrowAsNTimesAFew) {
  std::vector<Merge> merges;  // doubling: 1, 2, 4, ... 1024 of one letter
  for (int32_t i = 0; i < 10; ++i) merges.push_back({i, i, i + 1});
  const MergeTable table(merges);
  for (const size_t length : {size_t{48}, size_t{1000}, size_t{100'000}, size_t{2'000'000}}) {
    MergeScratch scratch;
    scratch.ids.assign(length, 0);
    table.apply(&scratch);
    EXPECT_EQ(scratch.ids[0], length >= 1024 ? 10 : length >= 512 ? 9 : 5);
    EXPECT_LE(scratch.num_steps, 48 * length)
        << length;  // quadratic would be `length` times `length`
  }
}

}  // namespace
}  // namespace sluice
