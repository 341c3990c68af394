#include <algorithm>

#include "tests/ops/op_cases.h"

namespace sluice {
namespace {

constexpr Tolerance kTwoRoundings{.ulps = 2, .mismatch = 0.005};
constexpr Tolerance kCopied{.ulps = 0, .mismatch = 0.0};

struct ConvRun {
  int32_t position;
  int32_t rows;
  bool checkpoint = false;
};

struct ConvCase {
  int64_t channels;
  std::vector<ConvRun> runs;
  int64_t pad = 0;
};

/// The columns a run may write, and the ring as the sequence left it: positions never reached stay
/// poison, so a read of them shows.
void prepare_ring(World& world, TensorRef<bf16> state, const RowRun& run, int64_t channels,
                  Rng& rng) {
  const int64_t end = run.position + run.num_rows;
  const auto column = [&](int64_t position) { return position % kConvRingColumns * channels; };
  for (int64_t p = std::max<int64_t>(0, run.position - kConvRingColumns); p < run.position; ++p) {
    bf16* values = world.mat(state).row(run.slot) + column(p);
    std::generate_n(values, channels, [&] { return to_bf16(static_cast<float>(rng.normal())); });
  }
  for (int64_t p = std::max<int64_t>(run.position, end - kConvRingColumns); p < end; ++p) {
    world.allow_writes(state, run.slot, column(p), channels);
  }
  const int64_t boundary = end / kGdnChunk * kGdnChunk;
  if (run.checkpoint_slot == kNoSlot || boundary <= run.position) return;
  for (int64_t p = boundary - (kConvTaps - 1); p < boundary; ++p) {
    world.allow_writes(state, run.checkpoint_slot, column(p), channels);
  }
}

OpCase conv1d_case(const ConvCase& p) {
  Rng rng(static_cast<uint64_t>(p.channels) + 77);
  OpCase c{.name = fmt::format("channels={} pad={}", p.channels, p.pad)};
  const auto num_slots = static_cast<int32_t>(2 * p.runs.size() + 1);
  const auto state = c.world.add<bf16>("ring", num_slots, kConvRingColumns * p.channels, p.pad);
  c.world.tensors[state.index].tolerance = kCopied;
  int32_t rows = 0;
  for (const ConvRun& r : p.runs) {
    const auto i = static_cast<int32_t>(c.runs.size());
    c.runs.push_back({.first_row = rows,
                      .num_rows = r.rows,
                      .position = r.position,
                      .slot = num_slots - 1 - 2 * i,
                      .checkpoint_slot = r.checkpoint ? num_slots - 2 - 2 * i : kNoSlot});
    prepare_ring(c.world, state, c.runs.back(), p.channels, rng);
    rows += r.rows;
    c.name += fmt::format(" [{}, +{}){}", r.position, r.rows, r.checkpoint ? "*" : "");
  }
  const auto x = c.world.filled<bf16>(
      "x", rows, p.channels, [&] { return rng.normal(); }, p.pad);
  const auto w = c.world.filled<float>("weight", p.channels, kConvTaps,
                                       [&] { return rng.uniform(-0.5, 0.5); });
  const auto out = c.world.output<bf16>("out", rows, p.channels, kTwoRoundings, p.pad);
  c.call = [=](const OpTable& t, World& world, OpContext& context, std::span<const RowRun> runs) {
    const RowWindow window(runs);
    const MatView<bf16> slots = world.mat(state);
    t.conv1d({.x = window.rows(world.mat(x)),
              .weight = world.span(w),
              .runs = window.runs,
              .state = {.data = slots.data,
                        .slot_stride = slots.stride,
                        .num_channels = slots.num_cols / kConvRingColumns},
              .out = window.rows(world.mat(out))},
             context);
  };
  return c;
}

OP_CASES(conv1d) {
  for (const int32_t position : {0, 1, 2, 3, 4, 15, 16, 17, 63, 64, 1000}) {
    cases.push_back(conv1d_case({.channels = 48, .runs = {{position, 1, true}}}));
    cases.push_back(conv1d_case({.channels = 40, .runs = {{position, 5, true}}, .pad = 3}));
  }
  for (const int32_t rows : {2, 3, 12, 13, 15, 16, 17, 63, 64, 65, 66, 67, 130, 200}) {
    cases.push_back(conv1d_case({.channels = 33, .runs = {{0, rows, true}}}));
    cases.push_back(conv1d_case({.channels = 64, .runs = {{61, rows, true}}}));
  }
  cases.push_back(conv1d_case({.channels = 768, .runs = {{0, 70}, {130, 1, true}, {62, 9, true}}}));
  cases.push_back(conv1d_case({.channels = 6144, .runs = {{5, 1}, {63, 1, true}, {9, 2}}}));
}

// ---- Negative controls

void conv_taps_reversed(const Conv1dArgs& args, OpContext& context) {
  std::vector<float> w(args.weight.begin(), args.weight.end());
  for (size_t i = 0; i < w.size(); i += kConvTaps) {
    std::reverse(w.begin() + static_cast<int64_t>(i), w.begin() + static_cast<int64_t>(i) + 4);
  }
  Conv1dArgs wrong = args;
  wrong.weight = w;
  ref_ops().conv1d(wrong, context);
}

/// Every run as if it began a sequence: what a multi-token call without cached state does.
void conv_forgets_the_ring(const Conv1dArgs& args, OpContext& context) {
  std::vector<RowRun> runs(args.runs.begin(), args.runs.end());
  for (RowRun& run : runs) run.position = 0;
  Conv1dArgs wrong = args;
  wrong.runs = runs;
  ref_ops().conv1d(wrong, context);
}

void conv_ignores_the_checkpoint(const Conv1dArgs& args, OpContext& context) {
  std::vector<RowRun> runs(args.runs.begin(), args.runs.end());
  for (RowRun& run : runs) run.checkpoint_slot = kNoSlot;
  Conv1dArgs wrong = args;
  wrong.runs = runs;
  ref_ops().conv1d(wrong, context);
}

void conv_state_after_activation(const Conv1dArgs& args, OpContext& context) {
  ref_ops().conv1d(args, context);
  for (const RowRun& run : args.runs) {
    const int32_t last = run.num_rows - 1;
    std::copy_n(args.out.row(run.first_row + last), args.out.num_cols,
                args.state.column(run.slot, run.position + last));
  }
}

void conv_writes_a_neighbour(const Conv1dArgs& args, OpContext& context) {
  ref_ops().conv1d(args, context);
  args.state.column(0, 0)[0].bits ^= 1;
}

TEST(conv1d, ChecksRejectWrongOnes) {
  OpTable wrong = ref_ops();
  for (const auto op : {conv_taps_reversed, conv_forgets_the_ring, conv_ignores_the_checkpoint,
                        conv_state_after_activation}) {
    wrong.conv1d = op;
    EXPECT_TRUE(any_case_rejects(conv1d_cases, check_values, wrong));
  }
  wrong.conv1d = conv_writes_a_neighbour;
  EXPECT_TRUE(any_case_rejects(conv1d_cases, check_untouched, wrong));
}

/// A prompt cut anywhere gives the same rows and ring as the whole.
TEST(conv1d, MayBeCutAtAnyRow) {
  const OpCase c = conv1d_case({.channels = 48, .runs = {{62, 70, true}}});
  for (const OpTable* backend : with_ref(&OpTable::conv1d)) {
    const World whole = run_case(c, *backend);
    for (int32_t cut = 1; cut < 70; ++cut) {
      const auto [head, tail] = cut_run(c.runs[0], cut);
      const Failure f = compare_bits(whole, run_in_calls(c, *backend, {{head}, {tail}}));
      EXPECT_FALSE(f) << backend->name << " cut at " << cut << ": " << *f;
    }
  }
}

}  // namespace
}  // namespace sluice
