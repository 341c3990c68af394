#include "forward/forward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

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

std::vector<int32_t> iota(int32_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

/// Logits of every position, `rows` at a time in the recurrent form.
std::vector<Logits> step_logits(Harness& harness, const std::vector<int32_t>& ids, int32_t rows) {
  Sequence sequence = harness.open(static_cast<int64_t>(ids.size()));
  std::vector<Logits> out;
  for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(rows)) {
    const auto count = std::min<size_t>(static_cast<size_t>(rows), ids.size() - first);
    const RowRun run = harness.state().next_run(sequence, 0, static_cast<int32_t>(count));
    const std::vector<int32_t> wanted = iota(static_cast<int32_t>(count));
    const StepOutput output = harness.forward().forward_rows(
        {std::span(ids).subspan(first, count), {&run, 1}, GdnForm::kStep, wanted}, harness.state());
    for (size_t i = 0; i < count; ++i)
      out.push_back(copy_row(output.logits, static_cast<int64_t>(i)));
    harness.state().advance(&sequence, static_cast<int64_t>(count), false);
  }
  harness.state().close(&sequence);
  return out;
}

double correlation(const Logits& a, const Logits& b) {
  double ab = 0.0;
  double aa = 0.0;
  double bb = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = to_float(bf16{a[i]});
    const double y = to_float(bf16{b[i]});
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

TEST(Forward, OneRowEqualsManyRowsBitForBit) {
  const RandomModel model(RandomModelSpec{});
  for (const OpTable* ops : all_backends()) {
    const std::vector<int32_t> ids = random_ids(ops == &ref_ops() ? 20 : 70, 256, 3);
    Harness harness(model.weights(), *ops, 2);
    const std::vector<Logits> one = step_logits(harness, ids, 1);
    for (const int32_t rows : {2, 5, 17, 64}) {
      EXPECT_EQ(step_logits(harness, ids, rows), one) << ops->name << " " << rows << " rows";
    }
    harness.state().check_integrity({});
  }
}

TEST(Forward, ThreadCountChangesNoBit) {
  const RandomModel model(RandomModelSpec{.format = WeightFormat::kBf16});
  for (const OpTable* ops : all_backends()) {
    const std::vector<int32_t> ids = random_ids(24, 256, 4);
    Harness one(model.weights(), *ops, 1);
    const std::vector<Logits> expected = step_logits(one, ids, 24);
    for (const int num_threads : {2, 3, 5}) {
      Harness many(model.weights(), *ops, num_threads);
      EXPECT_EQ(step_logits(many, ids, 24), expected)
          << ops->name << " " << num_threads << " threads";
    }
  }
}

TEST(Forward, SessionsInOneStepDoNotTouchEachOther) {
  const RandomModel model(RandomModelSpec{});
  const OpTable& ops = **cpu_ops(best_cpu_isa());
  Harness harness(model.weights(), ops, 2);
  const std::vector<int32_t> a = random_ids(9, 256, 5);
  const std::vector<int32_t> b = random_ids(9, 256, 6);
  const std::vector<Logits> alone_a = step_logits(harness, a, 3);
  const std::vector<Logits> alone_b = step_logits(harness, b, 3);
  Sequence sa = harness.open(16);
  Sequence sb = harness.open(16);
  for (size_t first = 0; first < 9; first += 3) {
    std::vector<int32_t> ids(a.begin() + static_cast<long>(first),
                             a.begin() + static_cast<long>(first) + 3);
    ids.insert(ids.end(), b.begin() + static_cast<long>(first),
               b.begin() + static_cast<long>(first) + 3);
    const RowRun runs[] = {harness.state().next_run(sa, 0, 3), harness.state().next_run(sb, 3, 3)};
    const std::vector<int32_t> wanted = iota(6);
    const StepOutput output =
        harness.forward().forward_rows({ids, runs, GdnForm::kStep, wanted}, harness.state());
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(copy_row(output.logits, static_cast<int64_t>(i)), alone_a[first + i]);
      EXPECT_EQ(copy_row(output.logits, static_cast<int64_t>(3 + i)), alone_b[first + i]);
    }
    harness.state().advance(&sa, 3, false);
    harness.state().advance(&sb, 3, false);
  }
}

TEST(Forward, EveryBackendAgreesWithRef) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kFp8Block128}) {
    const RandomModel model(RandomModelSpec{.format = format});
    const std::vector<int32_t> ids = random_ids(12, 256, 7);
    Harness ref(model.weights(), ref_ops(), 1);
    const std::vector<Logits> expected = step_logits(ref, ids, 12);
    for (const OpTable* ops : all_backends()) {
      Harness harness(model.weights(), *ops, 2);
      const std::vector<Logits> got = step_logits(harness, ids, 12);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_GT(correlation(got[i], expected[i]), 0.9995) << ops->name << " row " << i;
      }
    }
  }
}

TEST(Forward, EveryShapeOfTheFamilyRuns) {
  // Ratios of the published sizes: value heads to key heads 1, 2, 3; query heads to kv heads 4, 6.
  const RandomModelSpec specs[] = {
      {.num_attention_heads = 8,
       .num_key_value_heads = 2,
       .linear_num_key_heads = 2,
       .linear_num_value_heads = 2},
      {.num_attention_heads = 16,
       .num_key_value_heads = 4,
       .linear_num_key_heads = 2,
       .linear_num_value_heads = 4},
      {.num_attention_heads = 12,
       .num_key_value_heads = 2,
       .linear_num_key_heads = 1,
       .linear_num_value_heads = 3},
  };
  for (const RandomModelSpec& spec : specs) {
    const RandomModel model(spec);
    const std::vector<int32_t> ids = random_ids(6, 256, 8);
    Harness ref(model.weights(), ref_ops(), 1);
    Harness cpu(model.weights(), **cpu_ops(best_cpu_isa()), 2);
    const std::vector<Logits> expected = step_logits(ref, ids, 6);
    const std::vector<Logits> got = step_logits(cpu, ids, 6);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_GT(correlation(got[i], expected[i]), 0.9995);
  }
}

TEST(Forward, DraftHeadIsFedFromTheTargetAndKeepsItsOwnKeys) {
  const RandomModel model(RandomModelSpec{});
  Harness harness(model.weights(), **cpu_ops(best_cpu_isa()), 2);
  const std::vector<int32_t> ids = random_ids(20, 256, 9);
  const auto drafts = [&](int32_t rows_at_once) {
    Sequence sequence = harness.open(32);
    std::vector<Logits> out;
    for (int32_t first = 0; first < 18; first += rows_at_once) {
      const int32_t count = std::min(rows_at_once, 18 - first);
      const RowRun run = harness.state().next_run(sequence, 0, count);
      const std::span<const int32_t> all(ids);
      const StepOutput target = harness.forward().forward_rows(
          {all.subspan(static_cast<size_t>(first), static_cast<size_t>(count)),
           {&run, 1},
           GdnForm::kStep,
           {}},
          harness.state());
      const std::vector<int32_t> wanted = iota(count);
      const StepOutput draft = harness.forward().mtp_rows(
          {target.hidden,
           all.subspan(static_cast<size_t>(first) + 1, static_cast<size_t>(count)),
           {&run, 1},
           wanted},
          harness.state());
      for (int64_t i = 0; i < count; ++i) out.push_back(copy_row(draft.logits, i));
      harness.state().advance(&sequence, count, false);
    }
    harness.state().close(&sequence);
    return out;
  };
  const std::vector<Logits> one = drafts(1);
  EXPECT_EQ(drafts(18), one);
  EXPECT_EQ(drafts(5), one);
}

TEST(Forward, AShapeTheBackendCannotDoFailsAtLoadAndNamesItself) {
  RandomModel model(RandomModelSpec{});
  ModelWeights weights = model.weights();
  weights.config.hidden_size = 100;
  ThreadPool pool(1);
  const Result<Forward> forward =
      Forward::create(weights, **cpu_ops(best_cpu_isa()), pool, {64, 1, 256});
  ASSERT_FALSE(forward.ok());
  EXPECT_NE(forward.status().message().find("100"), std::string::npos)
      << forward.status().message();
}

}  // namespace
}  // namespace sluice
