// Blocks of a backend: taken where there is one, made of the parts where it declines.
#include <gtest/gtest.h>

#include "forward/block_parts.h"
#include "tests/unit/forward/harness.h"

namespace sluice {
namespace {

using testing::copy_row;
using testing::Harness;
using testing::Logits;
using testing::random_ids;
using testing::RandomModel;
using testing::RandomModelSpec;

int num_called = 0;

/// What a fused form would do.
template <auto kBlock, typename Args>
bool whole(const Args& args, OpContext& context) {
  ++num_called;
  kBlock(ref_ops(), args, context);
  return true;
}
template <typename Args>
bool declines(const Args&, OpContext&) {
  ++num_called;
  return false;
}
template <typename Args>
bool does_nothing(const Args&, OpContext&) {
  return true;
}

/// Logits of the last of 5 rows.
Logits last_logits(const OpTable& ops) {
  const RandomModel model(RandomModelSpec{});
  Harness harness(model.weights(), ops, 1);
  const std::vector<int32_t> ids = random_ids(5, 256, 9);
  Sequence sequence = harness.open(5);
  const RowRun run = harness.state().next_run(sequence, 0, 5);
  const std::vector<int32_t> wanted = {2, 4};
  const StepOutput output =
      harness.forward().forward_rows({ids, {&run, 1}, GdnForm::kStep, wanted}, harness.state());
  harness.state().close(&sequence);
  return copy_row(output.logits, 1);
}

OpTable with_blocks() {
  OpTable ops = ref_ops();
  ops.gdn_mixer = whole<gdn_mixer, GdnMixerArgs>;
  ops.attention_mixer = whole<attention_mixer, AttentionMixerArgs>;
  ops.mlp = whole<mlp, MlpArgs>;
  ops.head = whole<head, HeadArgs>;
  return ops;
}

constexpr int kBlocksOfModel = 2 * 4 + 1;  // four layers of a mixer and an MLP, and the head

TEST(Blocks, StandForTheirParts) {
  const Logits parts = last_logits(ref_ops());
  num_called = 0;
  EXPECT_EQ(last_logits(with_blocks()), parts);
  EXPECT_EQ(num_called, kBlocksOfModel);
}

TEST(Blocks, MayDecline) {
  OpTable ops = ref_ops();
  ops.gdn_mixer = declines<GdnMixerArgs>;
  ops.attention_mixer = declines<AttentionMixerArgs>;
  ops.mlp = declines<MlpArgs>;
  ops.head = declines<HeadArgs>;
  num_called = 0;
  EXPECT_EQ(last_logits(ops), last_logits(ref_ops()));
  EXPECT_EQ(num_called, kBlocksOfModel);
}

TEST(Blocks, AreNotDoneTwice) {
  for (const auto leave_out :
       {+[](OpTable& ops) { ops.gdn_mixer = does_nothing<GdnMixerArgs>; },
        +[](OpTable& ops) { ops.attention_mixer = does_nothing<AttentionMixerArgs>; },
        +[](OpTable& ops) { ops.mlp = does_nothing<MlpArgs>; }}) {
    OpTable ops = with_blocks();
    leave_out(ops);
    EXPECT_NE(last_logits(ops), last_logits(ref_ops()));
  }
}

}  // namespace
}  // namespace sluice
