#include "decode/prefill.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/forward/harness.h"

namespace sluice {
namespace {

using testing::all_backends;
using testing::copy_row;
using testing::Harness;
using testing::Logits;
using testing::random_ids;
using testing::RandomModel;
using testing::RandomModelSpec;

/// Prefills up to each cut in turn, then decodes `decode_ids` one by one; all logits that come out at the end of
/// the prompt and after it.
std::vector<Logits> run(Harness& harness, GdnForm form, const std::vector<int32_t>& prompt,
                        std::vector<size_t> cuts, const std::vector<int32_t>& decode_ids) {
  Sequence sequence = harness.open(static_cast<int64_t>(prompt.size() + decode_ids.size()));
  const PrefillOptions options = {form, 128};
  cuts.push_back(prompt.size());
  std::vector<Logits> out;
  for (const size_t cut : cuts) {
    const StepOutput output = prefill(harness.forward(), harness.state(),
                                      std::span(prompt).first(cut), options, &sequence);
    if (cut == prompt.size()) out.push_back(copy_row(output.logits, 0));
  }
  for (const int32_t id : decode_ids) {
    out.push_back(
        copy_row(decode_step(harness.forward(), harness.state(), id, form, &sequence).logits, 0));
  }
  harness.state().close(&sequence);
  return out;
}

TEST(Prefill, AnyCutOfAPromptGivesTheSameBits) {
  const RandomModel model(RandomModelSpec{});
  std::mt19937 random(11);
  for (const OpTable* ops : all_backends()) {
    const bool is_slow = ops == &ref_ops() || ops->name == cpu_isa_name(CpuIsa::kScalar);
    Harness harness(model.weights(), *ops, 2);
    for (const GdnForm form : {GdnForm::kStep, GdnForm::kChunk}) {
      const std::vector<int32_t> prompt = random_ids(is_slow ? 68 : 210, 256, 12);
      const std::vector<int32_t> decode_ids = random_ids(4, 256, 13);
      const std::vector<Logits> whole = run(harness, form, prompt, {}, decode_ids);
      std::vector<std::vector<size_t>> all_cuts = {{1, 2, 64}, {63}, {65, 66}};
      if (!is_slow) all_cuts.insert(all_cuts.end(), {{64}, {64, 65, 128}, {128, 200}});
      for (int i = 0; i < (is_slow ? 0 : 6); ++i) {
        std::vector<size_t> cuts;
        for (size_t at = 1 + random() % 90; at < prompt.size(); at += 1 + random() % 90)
          cuts.push_back(at);
        all_cuts.push_back(cuts);
      }
      for (const std::vector<size_t>& cuts : all_cuts) {
        EXPECT_EQ(run(harness, form, prompt, cuts, decode_ids), whole)
            << ops->name << (form == GdnForm::kStep ? " step" : " chunk") << " first cut "
            << cuts[0];
      }
    }
    harness.state().check_integrity({});
  }
}

TEST(Prefill, BothFormsAgreeClosely) {
  const RandomModel model(RandomModelSpec{});
  Harness harness(model.weights(), **cpu_ops(best_cpu_isa()), 2);
  const std::vector<int32_t> prompt = random_ids(200, 256, 14);
  const std::vector<Logits> step = run(harness, GdnForm::kStep, prompt, {}, {});
  const std::vector<Logits> chunk = run(harness, GdnForm::kChunk, prompt, {}, {});
  double diff = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < step[0].size(); ++i) {
    const double a = to_float(bf16{step[0][i]});
    const double b = to_float(bf16{chunk[0][i]});
    diff += (a - b) * (a - b);
    size += a * a;
  }
  EXPECT_LT(diff / size, 1e-3);
}

TEST(Prefill, AppendAfterDecodeContinuesFromTheCheckpoint) {
  const RandomModel model(RandomModelSpec{});
  Harness harness(model.weights(), **cpu_ops(best_cpu_isa()), 2);
  // Decode across a multiple of 64, append in two cuts: both must land on the same bits.
  const auto play = [&](size_t cut) {
    Sequence sequence = harness.open(300);
    std::vector<int32_t> ids = random_ids(60, 256, 15);
    const PrefillOptions options = {GdnForm::kChunk, 128};
    prefill(harness.forward(), harness.state(), ids, options, &sequence);
    for (const int32_t id : random_ids(10, 256, 16)) {
      ids.push_back(id);
      decode_step(harness.forward(), harness.state(), id, GdnForm::kChunk, &sequence);
    }
    EXPECT_EQ(sequence.checkpoint_position, 64);
    const std::vector<int32_t> more = random_ids(40, 256, 17);
    ids.insert(ids.end(), more.begin(), more.end());
    if (cut > 0)
      prefill(harness.forward(), harness.state(), std::span(ids).first(70 + cut), options,
              &sequence);
    const Logits out =
        copy_row(prefill(harness.forward(), harness.state(), ids, options, &sequence).logits, 0);
    harness.state().close(&sequence);
    return out;
  };
  const Logits whole = play(0);
  EXPECT_EQ(play(7), whole);
  EXPECT_EQ(play(39), whole);
}

}  // namespace
}  // namespace sluice
