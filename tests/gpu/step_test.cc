// Steps as the CUDA backend runs them: padded to a bucket, recorded once and replayed, several under way. Every way must leave the same bits.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/placed_weights.h"
#include "ops/cuda/bench_support.h"
#include "ops/cuda/cuda_ops.h"
#include "tests/support/random_model.h"
#include "verify/fingerprint.h"

namespace sluice {
namespace {

constexpr int64_t kContext = 700;

/// Asked for once: each call of cuda_ops chooses the projections anew.
const OpTable& cuda() {
  static const OpTable& table = **cuda_ops();
  return table;
}

int num_replayed = 0;
StepView last_view;

bool begin_watched(const StepRows& rows, OpContext& context) {
  const bool is_replayed = cuda().begin_step(rows, context);
  num_replayed += is_replayed;
  last_view = context.step;
  return is_replayed;
}

bool begin_unrecorded(const StepRows& rows, OpContext& context) {
  StepRows plain = rows;
  plain.key = {};
  return begin_watched(plain, context);
}

/// The CUDA table as it is; with every op called; with every op called and no padding.
OpTable recorded_ops() {
  OpTable table = cuda();
  table.begin_step = begin_watched;
  return table;
}
OpTable called_ops() {
  OpTable table = cuda();
  table.begin_step = begin_unrecorded;
  return table;
}
OpTable unpadded_ops() {
  OpTable table = called_ops();
  table.padded_rows = nullptr;
  return table;
}

/// A random model on the device, left to the process's end, where the driver may go first.
const ModelWeights& placed(const testing::RandomModelSpec& spec) {
  const auto* model = new testing::RandomModel(spec);
  return (new PlacedWeights(PlacedWeights::create(model->weights(), cuda(), nullptr).value()))
      ->weights();
}

const ModelWeights& weights() {
  static const ModelWeights& small = placed({});
  return small;
}

std::unique_ptr<ModelRunner> make_runner(const ModelWeights& model, const OpTable& ops,
                                         int32_t num_sequences) {
  RunnerLimits limits;
  limits.num_threads = 1;
  limits.context_max = kContext;
  limits.num_sequences = num_sequences;
  return ModelRunner::create(model, {&ops, GdnForm::kStep}, limits).value();
}
std::unique_ptr<ModelRunner> make_runner(const OpTable& ops, int32_t num_sequences) {
  return make_runner(weights(), ops, num_sequences);
}

/// Three steps of `num_rows` rows behind a short prompt, then as many drafts, and a session that must not be touched.
Fingerprint run_of_rows(const ModelWeights& model, const OpTable& ops, int64_t num_rows) {
  const std::unique_ptr<ModelRunner> runner = make_runner(model, ops, 2);
  const std::vector<int32_t> ids = random_ids(model.config, 5, 30 + 3 * num_rows + 1);
  Sequence bystander = runner->open();
  runner->rows(std::span(ids).first(9), &bystander);
  Sequence sequence = runner->open();
  runner->rows(std::span(ids).first(30), &sequence);
  Fingerprint print;
  for (int step = 0; step < 3; ++step) {
    const auto first = static_cast<size_t>(30 + step * num_rows);
    const auto count = static_cast<size_t>(num_rows);
    const StepOutput output = runner->rows(std::span(ids).subspan(first, count), &sequence);
    print.add_rows(*ops.memory, fmt::format("step {}", step), output);
    const StepOutput drafts =
        runner->drafts(output.hidden, std::span(ids).subspan(first + 1, count),
                       static_cast<int64_t>(first), sequence);
    print.add_rows(*ops.memory, fmt::format("drafts {}", step), drafts);
  }
  print.add_state(*runner, sequence);
  print.add_state(*runner, bystander);
  runner->close(&sequence);
  runner->close(&bystander);
  return print;
}

TEST(GpuSteps, ReplayedAndPaddedStepsLeaveTheSameBits) {
  const OpTable recorded = recorded_ops();
  const OpTable called = called_ops();
  const OpTable unpadded = unpadded_ops();
  for (const int64_t num_rows : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100}) {
    num_replayed = 0;
    const Fingerprint replays = run_of_rows(weights(), recorded, num_rows);
    // Of three steps and three drafts alike the later two of each.
    EXPECT_GE(num_replayed, num_rows <= 64 ? 4 : 0) << num_rows;
    num_replayed = 0;
    const Fingerprint calls = run_of_rows(weights(), called, num_rows);
    EXPECT_EQ(num_replayed, 0);
    EXPECT_EQ(first_difference(replays, calls), "") << num_rows << " rows, replayed against called";
    EXPECT_EQ(first_difference(calls, run_of_rows(weights(), unpadded, num_rows)), "")
        << num_rows << " rows, padded against not";
  }
}

/// Sessions that share steps, of which some rows' logits are wanted, in another order: the graph's list is not its own.
Fingerprint shared_steps(const OpTable& ops) {
  constexpr int32_t kSessions = 5;
  const std::unique_ptr<ModelRunner> runner = make_runner(ops, kSessions);
  const std::vector<int32_t> ids = random_ids(weights().config, 6, 1000);
  std::vector<Sequence> sequences;
  for (int32_t s = 0; s < kSessions; ++s) {
    sequences.push_back(runner->open());
    runner->prompt(
        std::span(ids).subspan(static_cast<size_t>(100 * s), static_cast<size_t>(3 + 50 * s)),
        &sequences.back(), [](int64_t, const StepOutput&) {});
  }
  Fingerprint print;
  for (int32_t step = 0; step < 12; ++step) {
    // The sessions of a step, their rows and the logits wanted change while the padded numbers stay.
    std::vector<RowRun> runs;
    int32_t num_rows = 0;
    for (int32_t s = 0; s < 3; ++s) {
      const int32_t count = 1 + (step + s) % 3;
      runs.push_back(runner->state().next_run(
          sequences[static_cast<size_t>((step + s) % kSessions)], num_rows, count));
      runs.back().checkpoint_slot = kNoSlot;
      num_rows += count;
    }
    std::vector<int32_t> logit_rows = {num_rows - 1, step % num_rows, 0};
    const auto tokens =
        std::span(ids).subspan(static_cast<size_t>(600 + 10 * step), static_cast<size_t>(num_rows));
    const StepOutput output =
        runner->forward().forward_rows({tokens, runs, GdnForm::kStep, logit_rows}, runner->state());
    EXPECT_FALSE(output.out_of_range);
    for (int32_t s = 0; s < 3; ++s) {
      runner->state().advance(&sequences[static_cast<size_t>((step + s) % kSessions)],
                              runs[static_cast<size_t>(s)].num_rows, false);
    }
    const StepOutput logits = {output.hidden.rows(0, 3), output.logits};
    print.add_rows(*ops.memory, fmt::format("step {}", step), logits);
  }
  for (Sequence& sequence : sequences) {
    print.add_state(*runner, sequence);
    runner->close(&sequence);
  }
  return print;
}

TEST(GpuSteps, ReplaysFollowTheStepsOwnRows) {
  const OpTable recorded = recorded_ops();
  const OpTable unpadded = unpadded_ops();
  num_replayed = 0;
  const Fingerprint replays = shared_steps(recorded);
  EXPECT_GE(num_replayed, 9);
  EXPECT_EQ(first_difference(replays, shared_steps(unpadded)), "");
}

/// One row a step; `ahead` steps are started before the oldest is finished.
Fingerprint decode(const OpTable& ops, size_t ahead) {
  const std::unique_ptr<ModelRunner> runner = make_runner(ops, 1);
  const std::vector<int32_t> ids = random_ids(weights().config, 7, 300);
  Sequence sequence = runner->open();
  std::vector<PendingStep> pending;
  StepOutput output;
  const int32_t logit_row = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    RowRun run = runner->state().next_run(sequence, 0, 1);
    run.checkpoint_slot = kNoSlot;
    pending.push_back(runner->forward().start_rows(
        {std::span(ids).subspan(i, 1), {&run, 1}, GdnForm::kStep, {&logit_row, 1}},
        runner->state()));
    runner->state().advance(&sequence, 1, false);
    const bool is_last = i + 1 == ids.size();
    while (!pending.empty() && (pending.size() > ahead || is_last)) {
      output = runner->forward().finish(pending.front());
      pending.erase(pending.begin());
    }
  }
  Fingerprint print;
  print.add_rows(*ops.memory, "last", output);
  print.add_state(*runner, sequence);
  runner->close(&sequence);
  return print;
}

TEST(GpuSteps, StepsUnderWayDoNotMixTheirRows) {
  const OpTable recorded = recorded_ops();
  const Fingerprint one_by_one = decode(called_ops(), 0);
  for (const size_t ahead : {0, 1, 3, 50}) {
    EXPECT_EQ(first_difference(one_by_one, decode(recorded, ahead)), "") << ahead;
  }
}

TEST(GpuSteps, ADrawnTokenStandsForItsId) {
  const OpTable recorded = recorded_ops();
  const std::unique_ptr<ModelRunner> runner = make_runner(recorded, 1);
  const std::vector<int32_t> ids = random_ids(weights().config, 8, 40);
  const auto run_with = [&](bool is_drawn) {
    Sequence sequence = runner->open();
    Fingerprint print;
    for (size_t i = 0; i < ids.size(); i += 2) {
      // As the sampler of the step before would leave it for logit rows 5 and 0.
      if (is_drawn && i > 0) {
        recorded.memory->upload(last_view.drawn + 5, &ids[i], sizeof(int32_t));
        recorded.memory->upload(last_view.drawn, &ids[i + 1], sizeof(int32_t));
      }
      const std::vector<int32_t> names = is_drawn && i > 0
                                             ? std::vector{drawn_token(5), drawn_token(0)}
                                             : std::vector{ids[i], ids[i + 1]};
      print.add_rows(*recorded.memory, fmt::format("step {}", i), runner->rows(names, &sequence));
    }
    runner->close(&sequence);
    return print;
  };
  EXPECT_EQ(first_difference(run_with(false), run_with(true)), "");
}

TEST(GpuSteps, TheRangeFlagIsItsOwnStepsOnly) {
  const OpTable recorded = recorded_ops();
  const std::unique_ptr<ModelRunner> runner = make_runner(recorded, 1);
  Sequence sequence = runner->open();
  const std::vector<int32_t> ids = {3};
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(runner->rows(ids, &sequence).out_of_range) << i;
    const int32_t flag = 1;
    recorded.memory->upload(last_view.range_flag, &flag, sizeof(flag));
    EXPECT_TRUE(runner->rows(ids, &sequence).out_of_range) << i;
  }
  runner->close(&sequence);
}

/// All bytes of a session's slot and pages, in use or not.
std::vector<std::vector<std::byte>> raw_state(const StatePool& state, const Sequence& sequence) {
  const auto bytes = [&](const auto* from, int64_t count) {
    const size_t size = static_cast<size_t>(count) * sizeof(*from);
    return fetch(state.memory(), reinterpret_cast<const std::byte*>(from),
                 static_cast<int64_t>(size));
  };
  const RecurrentLayerView recurrent = state.recurrent_layer(0);
  const ConvLayerView conv = state.conv_layer(0);
  const KvLayerView kv = state.kv_layer(0);
  std::vector<std::vector<std::byte>> raw = {
      bytes(recurrent.slot(sequence.slot), recurrent.slot_stride),
      bytes(conv.column(sequence.slot, 0), conv.slot_stride)};
  for (const int32_t page : sequence.page_table) {
    raw.push_back(bytes(kv.k_row(page, 0, 0), kv.page_stride));
  }
  return raw;
}

/// Whole steps that a sanitizer sees to their end: of few rows, of more rows and their other kernels, and drawn.
class GpuShortSteps : public ::testing::TestWithParam<int> {};

TEST_P(GpuShortSteps, StayInRange) {
  const OpTable called = called_ops();
  const std::unique_ptr<ModelRunner> runner = make_runner(called, 1);
  const std::vector<int32_t> ids = random_ids(weights().config, 10, GetParam());
  Sequence sequence = runner->open();
  RowRun run = runner->state().next_run(sequence, 0, GetParam());
  run.checkpoint_slot = kNoSlot;
  const int32_t logit_row = GetParam() - 1;
  const DrawRequest draw = {.temperature = 0.8f, .top_k = 20};
  StepInput input = {ids, {&run, 1}, GdnForm::kStep, {&logit_row, 1}};
  input.draws = {&draw, 1};
  input.num_defined = static_cast<int32_t>(weights().config.vocab_size);
  const StepOutput output = runner->forward().forward_rows(input, runner->state());
  EXPECT_FALSE(output.out_of_range);
  EXPECT_GE(output.drawn[0], 0);
  runner->close(&sequence);
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuShortSteps, ::testing::Values(1, 3, 16));

/// The same without GDN: steps of the draft head behind any hidden vectors.
class GpuShortDrafts : public ::testing::TestWithParam<int> {};

TEST_P(GpuShortDrafts, StayInRange) {
  const OpTable called = called_ops();
  const std::unique_ptr<ModelRunner> runner = make_runner(called, 1);
  const int64_t num_cols = weights().config.hidden_size;
  std::vector<bf16> values;
  for (const int32_t id : random_ids(weights().config, 13, GetParam() * num_cols)) {
    values.push_back(to_bf16(0.01f * static_cast<float>(id - 128)));
  }
  const Buffer buffer =
      called.memory->allocate(values.size() * sizeof(bf16), "hidden", MemoryKind::kPrivate).value();
  called.memory->upload(buffer.data(), values.data(), buffer.size());
  const MatView<const bf16> hidden(reinterpret_cast<const bf16*>(buffer.data()), GetParam(),
                                   num_cols, num_cols);
  const std::vector<int32_t> ids = random_ids(weights().config, 14, GetParam());
  Sequence sequence = runner->open();
  EXPECT_FALSE(runner->drafts(hidden, ids, 0, sequence).out_of_range);
  runner->close(&sequence);
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuShortDrafts, ::testing::Values(1, 3, 16));

/// Two sessions that decode side by side, greedily, each step started from what the one before drew.
class TwoGreedySessions {
 public:
  TwoGreedySessions(const OpTable& ops, std::span<const int32_t> stop_ids)
      : runner_(make_runner(ops, 2)) {
    const std::vector<int32_t> ids = random_ids(weights().config, 11, 30);
    for (Sequence& sequence : sequences_) {
      sequence = runner_->open();
      const auto first = &sequence == &sequences_[0] ? size_t{0} : size_t{9};
      runner_->rows(std::span(ids).subspan(first, 9), &sequence);
    }
    draws_[0].stop_ids = stop_ids;
  }
  ~TwoGreedySessions() {
    for (Sequence& sequence : sequences_) runner_->close(&sequence);
  }

  /// The ids that both draw.
  std::vector<int32_t> step(std::span<const int32_t> ids) {
    std::vector<RowRun> runs;
    for (int32_t s = 0; s < 2; ++s) {
      runs.push_back(runner_->state().next_run(sequences_[s], s, 1));
      runs.back().checkpoint_slot = kNoSlot;
    }
    const std::vector<int32_t> logit_rows = {0, 1};
    StepInput input = {ids, runs, GdnForm::kStep, logit_rows};
    input.draws = draws_;
    input.num_defined = static_cast<int32_t>(weights().config.vocab_size);
    input.wants_logits = false;
    const StepOutput output = runner_->forward().forward_rows(input, runner_->state());
    for (Sequence& sequence : sequences_) runner_->state().advance(&sequence, 1, false);
    return {output.drawn.begin(), output.drawn.end()};
  }
  std::vector<std::vector<std::byte>> state_of(int s) const {
    return raw_state(runner_->state(), sequences_[s]);
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
  Sequence sequences_[2];
  DrawRequest draws_[2];
};

TEST(GpuSteps, NothingIsRunBehindAStopId) {
  const std::vector<int32_t> first = {3, 4};
  const std::vector<int32_t> drawn = {drawn_token(0), drawn_token(1)};
  for (const OpTable& ops : {recorded_ops(), called_ops(), unpadded_ops()}) {
    TwoGreedySessions free(ops, {});
    const std::vector<int32_t> drawn_first = free.step(first);
    const auto stopped_at = free.state_of(0);
    const std::vector<int32_t> drawn_second = free.step(drawn);
    const std::vector<int32_t> drawn_third = free.step(drawn);
    EXPECT_NE(free.state_of(0), stopped_at);
    const std::vector<int32_t> stop_ids = {255, drawn_first[0]};
    TwoGreedySessions stopping(ops, stop_ids);
    EXPECT_EQ(stopping.step(first), drawn_first);
    EXPECT_EQ(stopping.step(drawn), (std::vector{kNoToken, drawn_second[1]}));
    EXPECT_EQ(stopping.step(drawn), (std::vector{kNoToken, drawn_third[1]}));
    EXPECT_EQ(stopping.state_of(0), stopped_at);
    EXPECT_EQ(stopping.state_of(1), free.state_of(1));
  }
}

TEST(GpuSteps, NothingIsRunBehindADrawThatFailed) {
  const OpTable recorded = recorded_ops();
  TwoGreedySessions sessions(recorded, {});
  sessions.step(std::vector{3, 4});
  const auto before = sessions.state_of(1);
  recorded.memory->upload(last_view.drawn + 1, &kNoToken, sizeof(kNoToken));
  EXPECT_EQ(sessions.step(std::vector{drawn_token(0), drawn_token(1)})[1], kNoToken);
  EXPECT_EQ(sessions.state_of(1), before);
}

TEST(GpuSteps, ARehearsalChangesNothingAndIsReplayed) {
  const OpTable recorded = recorded_ops();
  const OpTable unrecorded = called_ops();
  for (const int64_t num_rows : {1, 5, 64}) {
    const std::unique_ptr<ModelRunner> runner = make_runner(recorded, 1);
    const std::vector<int32_t> ids = random_ids(weights().config, 12, 30 + num_rows);
    Sequence sequence = runner->open();
    runner->rows(std::span(ids).first(30), &sequence);
    const auto before = raw_state(runner->state(), sequence);
    num_replayed = 0;
    runner->forward().rehearse_rows({num_rows, num_rows, false, 0, true}, runner->state());
    EXPECT_EQ(num_replayed, 0);
    EXPECT_EQ(raw_state(runner->state(), sequence), before);
    Fingerprint print;
    const auto rows = std::span(ids).subspan(30);
    print.add_rows(*recorded.memory, "step", runner->rows(rows, &sequence));
    EXPECT_EQ(num_replayed, 1);
    print.add_state(*runner, sequence);
    runner->close(&sequence);
    const std::unique_ptr<ModelRunner> caller = make_runner(unrecorded, 1);
    Sequence called = caller->open();
    caller->rows(std::span(ids).first(30), &called);
    Fingerprint call_print;
    call_print.add_rows(*recorded.memory, "step", caller->rows(rows, &called));
    call_print.add_state(*caller, called);
    EXPECT_EQ(first_difference(print, call_print), "") << num_rows;
    caller->close(&called);
  }
}

/// Chooses the projections for a scope.
class PortableProjections {
 public:
  PortableProjections() { SLUICE_CHECK(cuda_ops(true).ok()); }
  ~PortableProjections() { SLUICE_CHECK(cuda_ops(false).ok()); }
};

/// Kernels of a step, in order.
std::vector<std::string> kernels_of_step(const ModelWeights& model, const OpTable& ops,
                                         int64_t num_rows) {
  const std::unique_ptr<ModelRunner> runner = make_runner(model, ops, 1);
  const std::vector<int32_t> ids = random_ids(model.config, 9, num_rows);
  Sequence sequence = runner->open();
  RowRun run = runner->state().next_run(sequence, 0, static_cast<int32_t>(num_rows));
  run.checkpoint_slot = kNoSlot;
  cuda::StepLaunches::begin_catching();
  const PendingStep step =
      runner->forward().start_rows({ids, {&run, 1}, GdnForm::kStep, {}}, runner->state());
  const std::unique_ptr<cuda::StepLaunches> caught = cuda::StepLaunches::end_catching();
  runner->forward().finish(step);
  runner->close(&sequence);
  std::vector<std::string> names;
  for (const cuda::StepLaunch& launch : caught->all()) names.push_back(launch.kernel);
  return names;
}

/// Wide enough that a projection has several tiles and K comes in uneven parts.
testing::RandomModelSpec wide_model(WeightFormat format) {
  testing::RandomModelSpec spec;
  spec.hidden_size = 1152;
  spec.intermediate_size = 3200;
  spec.vocab_size = 2400;
  spec.format = format;
  return spec;
}

TEST(GpuSteps, PortableProjectionsLeaveTheSameBits) {
  const OpTable called = called_ops();
  for (const WeightFormat format : {WeightFormat::kFp8Block128, WeightFormat::kBf16}) {
    const ModelWeights& model = placed(wide_model(format));
    for (const int64_t num_rows : {1, 8, 9, 16, 17, 32, 33, 64}) {
      const Fingerprint own = run_of_rows(model, called, num_rows);
      const std::vector<std::string> own_kernels = kernels_of_step(model, called, num_rows);
      const PortableProjections portable;
      // Of few rows the portable kernels are everybody's.
      EXPECT_EQ(own_kernels == kernels_of_step(model, called, num_rows), num_rows <= 8);
      EXPECT_EQ(first_difference(own, run_of_rows(model, called, num_rows)), "")
          << num_rows << " rows";
    }
  }
}

}  // namespace
}  // namespace sluice
