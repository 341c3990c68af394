// Implements ops/conv1d.h. Test: tests/ops conv1d.
// Idea: a task owns a block of a run's channels and walks the rows, so nobody else reads the ring
// columns it then replaces. Accumulation: fp32, taps in order, one fused multiply-add each.
#include <cstring>

#include "ops/cpu/cpu_kernels.h"
#include "ops/cpu/vec_rows.h"

namespace sluice::SLUICE_CPU_NS {
namespace {

/// Channels of a task: their taps and four rows stay in L1 while the rows pass.
constexpr int64_t kBlock = 512;

/// The block's weights by tap.
struct Taps {
  alignas(64) float of[kConvTaps][kBlock] = {};

  Taps(const float* weight, int64_t count) {
    static_assert(kConvTaps == 4, "load_interleaved4");
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      Vec taps[kConvTaps];
      load_interleaved4(weight + i * kConvTaps, taps);
      for (int64_t j = 0; j < kConvTaps; ++j) store(of[j] + i, taps[j]);
    }
    for (; i < count; ++i) {
      for (int64_t j = 0; j < kConvTaps; ++j) of[j][i] = weight[i * kConvTaps + j];
    }
  }
};

struct Block {
  const Conv1dArgs& args;
  const RowRun& run;
  int64_t first;
  int64_t count;

  int64_t begin() const { return run.position; }
  int64_t end() const { return begin() + run.num_rows; }

  /// This block's inputs at `position`; zeros before the sequence began.
  const bf16* input(int64_t position) const {
    static constexpr bf16 kZeros[kBlock] = {};
    if (position < 0) return kZeros;
    if (position < begin()) return args.state.column(run.slot, position) + first;
    return args.x.row(run.first_row + position - begin()) + first;
  }

  void convolve(const Taps& taps, int64_t position) const {
    const bf16* x[kConvTaps];
    for (int64_t j = 0; j < kConvTaps; ++j) x[j] = input(position - (kConvTaps - 1) + j);
    bf16* out = args.out.row(run.first_row + position - begin()) + first;
    for_each_vec(count, [&](int64_t i, int64_t n) {
      Vec sum = zero();
      for (int64_t j = 0; j < kConvTaps; ++j) {
        sum = fma(load(taps.of[j] + i), load_upto(x[j] + i, n), sum);
      }
      store_upto(out + i, silu(round_bf16(sum)), n);
    });
  }

  /// Copies the inputs of [from, to) into a slot's ring.
  void keep(int32_t slot, int64_t from, int64_t to) const {
    for (int64_t p = std::max<int64_t>(from, 0); p < to; ++p) {
      std::memcpy(args.state.column(slot, p) + first, input(p),
                  static_cast<size_t>(count) * sizeof(bf16));
    }
  }

  void run_all() const {
    const Taps taps(args.weight.data() + first * kConvTaps, count);
    for (int64_t p = begin(); p < end(); ++p) convolve(taps, p);
    // The checkpoint first: the ring's old columns may be among its inputs.
    const int64_t boundary = end() / kGdnChunk * kGdnChunk;
    if (run.checkpoint_slot != kNoSlot && boundary > begin()) {
      keep(run.checkpoint_slot, boundary - (kConvTaps - 1), boundary);
    }
    keep(run.slot, std::max(begin(), end() - kConvRingColumns), end());
  }
};

}  // namespace

void conv1d(const Conv1dArgs& args, OpContext& context) {
  const int64_t channels = args.x.num_cols;
  const int64_t num_blocks = (channels + kBlock - 1) / kBlock;
  const auto num_runs = static_cast<int64_t>(args.runs.size());
  const auto task = [&](int64_t t, int) {
    const int64_t first = t % num_blocks * kBlock;
    const RowRun& run = args.runs[static_cast<size_t>(t / num_blocks)];
    Block{args, run, first, std::min(kBlock, channels - first)}.run_all();
  };
  const int64_t num_tasks = num_runs * num_blocks;
  if (args.x.num_rows * channels > kInlineElements) {
    context.pool->parallel_for(num_tasks, task);
    return;
  }
  for (int64_t t = 0; t < num_tasks; ++t) task(t, 0);
}

}  // namespace sluice::SLUICE_CPU_NS
