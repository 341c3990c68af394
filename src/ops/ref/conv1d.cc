// Implements ops/conv1d.h. Spec 3.5 step 2.
#include <algorithm>

#include "ops/ref/ref_math.h"
#include "ops/ref/ref_ops.h"

namespace sluice::ref {
namespace {

/// The input of `position`: from the run's rows, from the ring before them, null before position 0.
const bf16* input_at(const Conv1dArgs& args, const RowRun& run, int64_t position) {
  if (position < 0) return nullptr;
  if (position < run.position) return args.state.column(run.slot, position);
  return args.x.row(run.first_row + position - run.position);
}

void convolve_row(const Conv1dArgs& args, const RowRun& run, int64_t position) {
  const bf16* taps[kConvTaps];
  for (int64_t j = 0; j < kConvTaps; ++j) {
    taps[j] = input_at(args, run, position - (kConvTaps - 1) + j);
  }
  bf16* out = args.out.row(run.first_row + position - run.position);
  for (int64_t ch = 0; ch < args.x.num_cols; ++ch) {
    double sum = 0.0;
    for (int64_t j = 0; j < kConvTaps; ++j) {
      if (taps[j] == nullptr) continue;
      sum += static_cast<double>(args.weight[size_of(ch * kConvTaps + j)]) * widen(taps[j][ch]);
    }
    out[ch] = round_bf16(silu(rb(sum)));
  }
}

/// Copies the inputs of [first, last) into a slot's ring.
void keep_inputs(const Conv1dArgs& args, const RowRun& run, int32_t slot, int64_t first,
                 int64_t last) {
  for (int64_t p = std::max<int64_t>(first, 0); p < last; ++p) {
    std::copy_n(input_at(args, run, p), args.x.num_cols, args.state.column(slot, p));
  }
}

}  // namespace

void conv1d(const Conv1dArgs& args, OpContext&) {
  for (const RowRun& run : args.runs) {
    const int64_t begin = run.position;
    const int64_t end = begin + run.num_rows;
    for (int64_t p = begin; p < end; ++p) convolve_row(args, run, p);

    // The checkpoint first: the ring's old columns may be among its inputs.
    const int64_t boundary = end / kGdnChunk * kGdnChunk;
    if (run.checkpoint_slot != kNoSlot && boundary > begin) {
      keep_inputs(args, run, run.checkpoint_slot, boundary - (kConvTaps - 1), boundary);
    }
    keep_inputs(args, run, run.slot, std::max(begin, end - kConvRingColumns), end);
  }
}

}  // namespace sluice::ref
