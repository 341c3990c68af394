// Decode attention where a block has more items than it looks ahead: many short runs, whose items are light, in front of long ones.
#include "tests/ops/attention_case.h"

namespace sluice {
namespace {

/// By weight a block's share is some 12 leaves of 64 positions here, on 132 multiprocessors: the first one has all twelve items of the short runs.
OpCase light_items_first() {
  return attention_case({.heads = 24,
                         .kv_heads = 4,
                         .runs = {{10, 1}, {40, 1}, {100, 1}, {8100, 1}, {8150, 1}, {8190, 1}}});
}

TEST(attention, ManyLightItemsOfABlock) {
  const OpCase c = light_items_first();
  for (const OpTable* backend : tested_backends(&OpTable::attention)) {
    for (const Check check : {check_values, check_repeats, check_row_identity}) {
      const Failure failure = check(c, *backend);
      EXPECT_FALSE(failure) << *failure;
    }
  }
}

}  // namespace
}  // namespace sluice
