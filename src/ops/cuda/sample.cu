// Implements ops/cuda/sample.h: scan_kernel looks at every logit once, on many multiprocessors; finish_kernel ends each row.
//
// A bf16 logit is a 16-bit key in the same order (-0 and +0 share one), so equal keys are the host's ties. A piece is what one warp holds: 256 ids.
//
//   greedy       scan: best id of each piece.             finish, one block: the best of them.
//   plain        scan: best score of each piece.          finish, one block: the best of them.
//   top-k <= 64  scan: as greedy.                         finish, one block: the k-th highest of its threads' shares bounds the k-th logit from below, so
//                                                         only pieces that reach the bound are read again, into a list (sample_list.cuh).
//   classes      scan: how often each key occurs; the     finish, many blocks: the best score of what is kept (sample_parts.cuh).
//                row's last block finds the key that
//                top-k and top-p cut (sample_classes.cuh).
//   min-p alone  scan: as greedy.                         finish, many blocks: as classes.
//
// Scores are compared in fp64 as on the host. An fp32 estimate of the noise, within kNoiseSlack of it, tells which few ids can be best; only theirs are computed.
// Nothing depends on the order of atomics: counts and masses are integers, and lists are ranked by (key, id). Nor does anything but speed on the bucket.

#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/pdl.cuh"
#include "ops/cuda/sample.h"
#include "ops/cuda/sample_classes.cuh"
#include "ops/cuda/sample_list.cuh"
#include "ops/cuda/sample_parts.cuh"

namespace sluice::cuda {
namespace {

using namespace sampling;  // NOLINT: the sampler's own parts

constexpr int kBlocks = 3;      // of scan_kernel on a multiprocessor: 80 registers, no spills
constexpr int kRowBlocks = 16;  // of scan_kernel's grid
constexpr int kRowsPerBlockMax = kSampleRowsMax / kRowBlocks;
constexpr int kRegisters = 96;  // of finish_kernel: one block fits beside a GEMV's

/// Up to here a kernel has room to come early, beside the head, and runs its code once before the logits are there, on whatever lies in memory, and forgets the
/// result: its instructions are then at hand. Its gain was not measured apart.
constexpr int kRehearsedRows = 2;

// ---- scan ----

/// What greedy, margin and top-k need of a piece: key << 16 | (255 - place) of its best, and its second-best key.
__device__ uint2 piece_top_by_keys(const Eight& eight) {
  uint32_t best = 0, second = 0;
#pragma unroll
  for (int i = 0; i < kLaneIds; ++i) {
    const uint32_t key = eight.key(i);
    const uint32_t packed =
        key << 16 | static_cast<uint32_t>(kPieceIds - 1 - (lane_id() * kLaneIds + i));
    second = max(second, min(key, best >> 16));
    best = max(best, packed);
  }
  const uint32_t top = __reduce_max_sync(kAllLanes, best);
  return {top, __reduce_max_sync(kAllLanes, best == top ? second : best >> 16)};
}

/// As piece_top_by_keys, two logits at a time. What the order above does not tell (a zero at the top, a negative NaN, the vocabulary's end) goes there.
__device__ uint2 piece_top(const Eight& eight) {
  const uint32_t pairs[kLaneIds / 2] = {eight.raw.x, eight.raw.y, eight.raw.z, eight.raw.w};
  uint32_t ordered[kLaneIds / 2];
  uint32_t best = 0x80008000u, second = 0x80008000u, bits = 0;
#pragma unroll
  for (int i = 0; i < kLaneIds / 2; ++i) {
    ordered[i] = ordered_pair(pairs[i]);
    bits = __vmaxu2(bits, pairs[i]);
    second = __vmaxs2(second, __vmins2(best, ordered[i]));
    best = __vmaxs2(best, ordered[i]);
  }
  const int own = max(low_half(best), high_half(best));
  const int next =
      max(min(low_half(best), high_half(best)), max(low_half(second), high_half(second)));
  const int top = __reduce_max_sync(kAllLanes, own);
  const bool is_odd = eight.num_ids < kLaneIds || (bits & 0xffffu) > 0xff80u || bits > 0xff80ffffu;
  if (__any_sync(kAllLanes, is_odd) || top == 0 || top == -1) return piece_top_by_keys(eight);
  const int owner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, own == top))) - 1;
  int place = 0;
  if (lane_id() == owner) {
#pragma unroll
    for (int i = kLaneIds / 2 - 1; i >= 0; --i) {
      if (high_half(ordered[i]) == top) place = 2 * i + 1;
      if (low_half(ordered[i]) == top) place = 2 * i;
    }
  }
  place = __shfl_sync(kAllLanes, place, owner) + owner * kLaneIds;
  const int runner_up = __reduce_max_sync(kAllLanes, lane_id() == owner ? next : own);
  return {key_of_ordered(top) << 16 | static_cast<uint32_t>(kPieceIds - 1 - place),
          key_of_ordered(runner_up)};
}

/// Sum of exp(logit - max), max being the piece's; 0 where that is -infinity or there is none.
__device__ double piece_sum(const Eight& eight, uint32_t max_key) {
  const double max = value_of(max_key);
  if (max_key <= kKeyZero - 0x7f80u) return 0.0;
  double sum = 0.0;
#pragma unroll 1
  for (int i = 0; i < kLaneIds; ++i) {
    const double probability = exp(static_cast<double>(eight.logit(i)) - max);
    sum += i < eight.num_ids ? probability : 0.0;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  return sum;
}

/// By the block: adds its keys; the row's last block cuts. Every block of the row comes here.
__device__ void scan_classes(const SampleArgs& args, const SampleRow& p, const RowSpace& space,
                             const Eight& eight) {
  __shared__ SelectShared s;
  const KeyRange range = key_range(p.temperature);
  if (threadIdx.x < kGroups / 32) s.touched[threadIdx.x] = 0;
  __syncthreads();
  count_keys(eight, range, space.counts, s.touched);
  __syncthreads();
  if (threadIdx.x < kGroups / 32 && s.touched[threadIdx.x] != 0) {
    atomicOr(&space.head->touched[threadIdx.x], s.touched[threadIdx.x]);
  }
  if (!is_last_block(&space.head->scan_ticket, gridDim.x)) return;
  select_classes(args, p, space, s);
  if (threadIdx.x == 0) space.head->cut = s.cut;
}

/// What a row asks of a scan, in shared memory.
struct Asked {
  SampleRow row;
  bool is_active, has_logprob, is_plain, is_classes;
};

/// grid [ceil(pieces / kWarps), ceil(num_rows / rows_per_block)]: a block has the same ids of its rows, whose loads fly together.
__global__ void __launch_bounds__(kThreads, kBlocks)
    scan_kernel(const SampleArgs args, int rows_per_block) {
  __shared__ Asked asked[kRowsPerBlockMax];
  __shared__ float noises[kLaneIds][kThreads];
  pdl_launch();
  const int pieces = num_pieces(args.num_defined);
  const int piece = static_cast<int>(blockIdx.x) * kWarps + warp_id();
  const int first_row = static_cast<int>(blockIdx.y) * rows_per_block;
  const int num_rows = min(args.num_rows - first_row, rows_per_block);
  const int mine = static_cast<int>(threadIdx.x);
  if (mine < num_rows) {
    const SampleRow p = args.rows[first_row + mine];
    const Mode mode = mode_of(p, args.num_defined);
    asked[mine] = {p, (p.flags & kSampleActive) != 0, (p.flags & kSampleLogprob) != 0,
                   mode == Mode::kPlain, mode == Mode::kClasses};
  }
  __syncthreads();
  const bool rehearses = args.num_rows <= kRehearsedRows;
  Eight eight;
  eight.first_id = piece * kPieceIds + lane_id() * kLaneIds;
  eight.num_ids = min(max(args.num_defined - eight.first_id, 0), kLaneIds);
  uint4 raws[kRowsPerBlockMax] = {};
#pragma unroll 1
  for (int pass = rehearses ? 0 : 1; pass < 2; ++pass) {
    const bool is_rehearsal = pass == 0;
    if (!is_rehearsal) {
      pdl_wait();
#pragma unroll
      for (int r = 0; r < kRowsPerBlockMax; ++r) {
        if (r < num_rows) raws[r] = load_eight(args, first_row + r, piece).raw;
      }
    }
#pragma unroll 1
    for (int r = 0; r < num_rows && piece < pieces; ++r) {
      eight.raw = raws[0];
#pragma unroll
      for (int i = 1; i < kRowsPerBlockMax; ++i) raws[i - 1] = raws[i];
      if (!asked[r].is_active) continue;
      const SampleRow& p = asked[r].row;
      const RowSpace space = row_space(args, first_row + r);
      const bool writes = lane_id() == 0 && !is_rehearsal;
      const uint2 top = piece_top(eight);
      if (writes) space.tops[piece] = top;
      if (asked[r].has_logprob) {
        const double sum = piece_sum(eight, top.x >> 16);
        if (writes) space.sums[piece] = sum;
      }
      if (asked[r].is_plain) {
        // The noise needs no logits: a rehearsal's is the one.
        float noise[kLaneIds];
        if (is_rehearsal || !rehearses) estimate_eight(p, eight, noise);
#pragma unroll
        for (int i = 0; i < kLaneIds; ++i) {
          float& kept = noises[i][threadIdx.x];
          if (is_rehearsal) kept = noise[i];
          if (!is_rehearsal && rehearses) noise[i] = kept;
        }
        float bar = -FLT_MAX;
        Draw best = no_draw();
        draw_eight(p, eight, (1u << eight.num_ids) - 1, noise, bar, best);
        best = warp_best(best);
        if (writes) space.draws[piece] = best;
      }
    }
  }
#pragma unroll 1
  for (int r = 0; r < num_rows; ++r) {
    if (!asked[r].is_active || !asked[r].is_classes) continue;
    const int row = first_row + r;
    scan_classes(args, asked[r].row, row_space(args, row), load_eight(args, row, piece));
  }
}

// ---- finish ----

/// `highest`: the best key of the thread's own pieces.
__device__ Top row_top(const RowSpace& space, int pieces, uint32_t& highest) {
  __shared__ Top per_warp[kWarps];
  Top top = {0, UINT_MAX, 0};
#pragma unroll 4
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
    const uint2 packed = __ldcg(&space.tops[piece]);
    const uint32_t key = packed.x >> 16;
    const auto first_id = static_cast<uint32_t>(piece * kPieceIds);
    // Later pieces have higher ids: a tie leaves the first.
    top.second = max(max(top.second, packed.y), min(top.key, key));
    if (key > top.key) {
      top.key = key;
      top.id = first_id + (kPieceIds - 1 - (packed.x & 0xffffu));
    }
  }
  highest = top.key;
  top = warp_top(top);
  if (lane_id() == 0) per_warp[warp_id()] = top;
  __syncthreads();
  top = lane_id() < kWarps ? per_warp[lane_id()] : Top{0, UINT_MAX, 0};
  return warp_top(top);
}

/// Over the raw logits; the tree of sums hangs on the vocabulary alone.
__device__ double row_log_sum(const RowSpace& space, int pieces, uint32_t max_key) {
  __shared__ double per_warp[kWarps];
  const double max = value_of(max_key);
  double sum = 0.0;
#pragma unroll 4
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
    const double own = __ldcg(&space.sums[piece]);
    const double factor = exp(value_of(top_key(space, piece)) - max);
    sum += own > 0.0 ? own * factor : 0.0;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (lane_id() == 0) per_warp[warp_id()] = sum;
  __syncthreads();
  sum = 0.0;
  for (int w = 0; w < kWarps; ++w) sum += per_warp[w];
  return sum > 0.0 ? max + log(sum) : NAN;
}

/// By one block: as scan_classes over the whole row, for a top-k whose ties outgrew the list.
__device__ void count_row(const SampleArgs& args, int row, const SampleRow& p,
                          const RowSpace& space, const KeyRange& range, SelectShared& s) {
  if (threadIdx.x < kGroups / 32) s.touched[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int piece = warp_id(); piece < num_pieces(args.num_defined); piece += kWarps) {
    count_keys(load_eight(args, row, piece), range, space.counts, s.touched);
  }
  __syncthreads();
  if (threadIdx.x < kGroups / 32) space.head->touched[threadIdx.x] = s.touched[threadIdx.x];
  __threadfence();
  __syncthreads();
  select_classes(args, p, space, s);
}

/// By the block: the best of the pieces' draws.
__device__ Draw best_of(const Draw* draws, int num) {
  Draw best = no_draw();
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < num; i += kThreads) {
    best = better(best, load_draw(draws + i));
  }
  return block_best(best);
}

__device__ void write_draw(const SampleArgs& args, int row, int32_t id, bool has_logprob,
                           double log_sum) {
  args.drawn[row] = id;
  if (!has_logprob) return;
  const uint16_t* logits = &args.logits[row * args.stride].bits;
  args.drawn_logits[row].log_sum_exp = log_sum;
  args.drawn_logits[row].drawn = widen(bf16{__ldcg(logits + id)});
}

/// grid [num_rows, parts]: every part of a row draws in modes classes and min-p, the first alone in the others.
__global__ void __maxnreg__(kRegisters) finish_kernel(const SampleArgs args) {
  __shared__ ListShared list;
  __shared__ SelectShared select;
  pdl_launch();
  const int row = static_cast<int>(blockIdx.x);
  const int part = static_cast<int>(blockIdx.y);
  const SampleRow p = args.rows[row];
  const bool is_active = (p.flags & kSampleActive) != 0;
  const Mode mode = mode_of(p, args.num_defined);
  const bool is_shared = mode == Mode::kClasses || mode == Mode::kMinP;
  if (part > 0 && !(is_active && is_shared)) return;
  const KeyRange range = key_range(mode == Mode::kGreedy ? 1.0f : p.temperature);
  const bool has_logprob = (p.flags & kSampleLogprob) != 0;
  const int num_top = has_logprob ? min(p.num_top, kLogprobsMax) : 0;
  const int list_k = max(mode == Mode::kTopK ? p.top_k : 0, num_top);
  const int pieces = num_pieces(args.num_defined);
  const RowSpace space = row_space(args, row);
  const bool rehearses = args.num_rows <= kRehearsedRows && is_active && !is_shared;
#pragma unroll 1
  for (int pass = rehearses ? 0 : 1; pass < 2; ++pass) {
    const bool is_rehearsal = pass == 0;
    __syncthreads();
    // Even a step of padding alone waits: the next kernel trusts that this one ends behind the one before it.
    if (!is_rehearsal) pdl_wait();
    if (!is_active) return;
    uint32_t highest;
    const Top top = row_top(space, pieces, highest);
    if (top.key >= kKeyInf && !is_rehearsal) {
      if (part == 0 && threadIdx.x == 0) args.drawn[row] = kNoToken;
      return;
    }
    const double floor =
        p.log_min_p + static_cast<double>(value_of(range.clamp(top.key)) / p.temperature);
    Draw best = {0.0, static_cast<int32_t>(top.id)};
    if (mode == Mode::kPlain) best = best_of(space.draws, pieces);
    bool is_list_whole = false;
    if (list_k > 0 && part == 0) {
      is_list_whole = list_likeliest(args, row, space, range, highest, top.key, list_k, list);
    }
    if (num_top > 0 && part == 0) {
      write_tops(args, row, space, num_top, is_rehearsal, is_list_whole, list);
    }
    if (mode == Mode::kTopK && is_list_whole) {
      best = draw_from_list(p, range, top.key, floor, list);
    } else if ((mode == Mode::kTopK || is_shared) && !is_rehearsal) {
      Cut cut = {0, kKeepAll};
      if (mode == Mode::kTopK) {
        count_row(args, row, p, space, range, select);
        cut = select.cut;
      } else if (mode == Mode::kClasses) {
        cut = {__ldcg(&space.head->cut.key), __ldcg(&space.head->cut.num_kept)};
      }
      const int parts = is_shared ? static_cast<int>(gridDim.y) : 1;
      if (!draw_together(args, row, p, space, range, cut, floor, part, parts, select, best)) return;
    }
    const double log_sum = has_logprob ? row_log_sum(space, pieces, top.key) : NAN;
    if (threadIdx.x == 0 && !is_rehearsal) {
      write_draw(args, row, best.id, has_logprob, log_sum);
    }
  }
}

bool is_valid(const SampleArgs& args) {
  const int64_t loaded =
      (static_cast<int64_t>(args.num_defined) + kLaneIds - 1) / kLaneIds * kLaneIds;
  return args.num_rows > 0 && args.num_rows <= kSampleRowsMax && args.num_defined > 0 &&
         args.num_defined <= INT_MAX - kPieceIds * kWarps && args.stride % kLaneIds == 0 &&
         args.stride >= loaded && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(args.workspace) % kAlign == 0;
}

}  // namespace

size_t sample_workspace_bytes(int num_rows, int num_defined) {
  return static_cast<size_t>(num_rows) * row_bytes(num_pieces(num_defined));
}

cudaError_t launch_sample(const SampleArgs& args, cudaStream_t stream) {
  if (!is_valid(args)) return cudaErrorInvalidValue;
  const int blocks = (num_pieces(args.num_defined) + kWarps - 1) / kWarps;
  const int rows_per_block = (args.num_rows + kRowBlocks - 1) / kRowBlocks;
  const int row_blocks = (args.num_rows + rows_per_block - 1) / rows_per_block;
  const dim3 scan_grid(static_cast<unsigned>(blocks), static_cast<unsigned>(row_blocks));
  const cudaError_t error =
      launch_chained<scan_kernel>({scan_grid, kThreads}, stream, args, rows_per_block);
  if (error != cudaSuccess) return error;
  const int parts = args.num_rows > kPartsMax / 8 ? 8 : kPartsMax / args.num_rows;
  const dim3 finish_grid(static_cast<unsigned>(args.num_rows), static_cast<unsigned>(parts));
  return launch_chained<finish_kernel>({finish_grid, kThreads}, stream, args);
}

}  // namespace sluice::cuda
