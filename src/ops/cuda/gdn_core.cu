// Implements ops/cuda/gdn_core.h: conv1d, gdn_gates, gdn_step and gated_rms_norm in one kernel.
//
// A block has 128 / kSlices value columns of one value head; the kSlices blocks of a head are a
// cluster, since the norm's mean goes over the whole head: they send each other the squares' sums.
//   8 warps have a run: the block, or a half of it where steps are large.
//   A run of one row is a matter of bandwidth: the warps read 128 bytes of a row of k at a time and
//   convolve a thread a channel.
//   A run of several is a matter of the steps from row to row: 4 warps own the state, 16 columns each,
//   and need no other warp within a tile of 16 rows. The others meanwhile make the next tile (q, k, v,
//   factors) and finish the one before (the gated norm).
// Either way the state stays in registers over the run's rows.
//
// Every sum has a fixed tree that knows neither the run's length nor the row's place in it.
// Below sm_90 there are no clusters, and a block has a whole head.
#include "ops/cuda/chained_launch.cuh"
#include "ops/cuda/gdn_core_block.cuh"
#include "ops/cuda/gdn_core_conv.cuh"
#include "ops/cuda/gdn_core_norm.cuh"
#include "ops/cuda/gdn_core_rule.cuh"
#include "ops/cuda/gdn_core_tile.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda {
namespace gdn {
namespace {

/// A run of one row. `warp` of a half.
template <typename L>
__device__ __forceinline__ void run_row(const Place<L>& at, int warp) {
  constexpr int kWarpsOfV = L::kColumns / kWarp;
  constexpr int kGateWarp = L::kHalfWarps - kWarpsOfV - 1;
  const unsigned thread = threadIdx.x % L::kHalfThreads;
  const StepPlace<L> my;
  const unsigned offset = my.offset(at.slice());
  SharedStep<L>& step = at.shared.work[at.half].step;
  StateTile state;
  state.load(at.state(at.run.slot) + offset);
  const unsigned which = thread / kHeadDim % 2;
  const unsigned dim = thread % kHeadDim;
  const RowConv<L> conv(at, at.qk_channel(which) + dim);
  const auto wait = [&] {
    prefetch_norm(at);
    pdl_wait();
    if (warp >= kChannelsQk / kWarp) return;
    const float y = widen(conv.value());
    step.qk[which][dim] = y;
    const float squares = warp_sum(y * y);
    if (threadIdx.x % kWarp == 0) step.squares[which][dim / kSumChannels] = squares;
  };
  Gate<L, 1> gate{0, 1, 1, {}};
  if (warp > kGateWarp) {
    const unsigned column = thread - (kGateWarp + 1) * kWarp;
    const RowConv<L> conv_v(at, at.v_channel() + column);
    wait();
    at.row(0).values[column] = conv_v.value();
    if (warp == L::kHalfWarps - 1) gate.load(at);
  } else if (warp == kGateWarp) {
    const float exp_A = expf(at.args.A_log[at.head()]);
    const float dt_bias = at.args.dt_bias[at.head()];
    wait();
    make_gates(at, exp_A, dt_bias);
  } else {
    wait();
  }
  barrier_sync(kHalf + at.half, L::kHalfThreads);
  recur_once(state, my, at);
  // The state's stores keep the way to shared memory busy: not before the sums are sent.
  barrier_sync(kHalf + at.half, L::kHalfThreads);
  if (warp == L::kHalfWarps - 1) norm_rows(at, gate, &at.shared.all_sums[at.half][0]);
  if (at.checkpoint_rows() > 0) state.store(at.state(at.run.checkpoint_slot) + offset);
  state.store(at.state(at.run.slot) + offset);
  advance_ring(at, warp);
  if (warp == 3) leave_checkpoint(at);
}

/// The first tile of a run of several rows, by all warps of the half.
template <typename L>
__device__ __forceinline__ void begin_tiles(const Place<L>& at, int warp) {
  const Crew all{warp, L::kHalfWarps};
  const bool makes_gates = warp == L::kHalfWarps - 1;
  float exp_A = 0.0f, dt_bias = 0.0f;
  TileConv<L>::prefetch(at);
  prefetch_norm(at);
  if (makes_gates) {
    exp_A = expf(at.args.A_log[at.head()]);
    dt_bias = at.args.dt_bias[at.head()];
  }
  pdl_wait();
  fetch_inputs(at, 0, all);
  if (makes_gates) make_gates(at, exp_A, dt_bias);
  cp_async_wait();
  barrier_sync(kHalf + at.half, L::kHalfThreads);
  TileConv<L>::run(at, 0, at.shared.work[at.half].several.tiles[0], all);
  barrier_sync(kHalf + at.half, L::kHalfThreads);
}

/// The next tile, while the owners are at the one that begins at `row`. And the conv ring's old
/// columns, when all of the half has read them.
template <typename L>
__device__ __forceinline__ void make_next(const Place<L>& at, int row, Tile<L>& next,
                                          Crew helpers) {
  const int next_row = row + L::kTileRows;
  if (row == 0) {
    fetch_inputs(at, next_row, helpers);
    if (helpers.warp == 0) {
      leave_checkpoint(at);
      __syncwarp();
      if (at.num_rows() > kRowsBesideHistory && threadIdx.x % kWarp == 0) take_ticket(at);
    }
  }
  if (next_row >= at.num_rows()) return;
  const int barrier = kHelpersOnly + at.half;
  cp_async_wait();
  barrier_sync(barrier, L::kHelpers * kWarp);
  TileConv<L>::run(at, next_row, next, helpers);
  barrier_sync(barrier, L::kHelpers * kWarp);
  fetch_inputs(at, next_row + L::kTileRows, helpers);
  if (helpers.warp == 0) make_factors(at, next_row, next);
}

template <typename L>
using TileGate = Gate<L, L::kRowsOfHelper>;
template <typename L>
__device__ __forceinline__ TileGate<L> gate_of(const Place<L>& at, int row, Crew helpers) {
  TileGate<L> gate{
      row + helpers.warp, helpers.num_warps, min(row + L::kTileRows, at.num_rows()), {}};
  gate.load(at);
  return gate;
}

/// The norm of a tile whose o is there.
template <typename L>
__device__ __forceinline__ void finish_tile(const Place<L>& at, int row, const TileGate<L>& gate,
                                            Crew helpers) {
  share_sums(at, row, helpers.warp);
  if constexpr (L::kSlices == 1) barrier_sync(kHelpersOnly + at.half, L::kHelpers * kWarp);
  norm_rows(at, gate, &at.shared.all_sums[at.half][row / L::kTileRows]);
}

/// A run of several rows. `warp` of a half.
template <typename L>
__device__ __forceinline__ void run_tiles(const Place<L>& at, int warp) {
  auto& tiles = at.shared.work[at.half].several.tiles;
  constexpr int kLastBuffer = SharedTiles<L>::kBuffers - 1;
  const int barrier = kHalf + at.half;
  int buffer = 0;
  if (warp < L::kOwners) {
    const TilePlace<L> my;
    WideTile state;
    state.load(at.state(at.run.slot) + my.offset(at.slice()));
    begin_tiles(at, warp);
    make_factors(at, 0, tiles[0]);  // every owner, the same
    __syncwarp();
#pragma unroll 1
    for (int row = 0; row < at.num_rows(); row += L::kTileRows) {
      recur(state, my, at, row, tile_rows(at, row), tiles[buffer]);
      barrier_sync(barrier, L::kHalfThreads);
      buffer = kLastBuffer - buffer;
    }
    state.store(at.state(at.run.slot) + my.offset(at.slice()));
    advance_ring(at, warp);
    return;
  }
  const Crew helpers{warp - L::kOwners, L::kHelpers};
  begin_tiles(at, warp);
  int row = 0;
#pragma unroll 1
  for (; row < at.num_rows(); row += L::kTileRows) {
    buffer = kLastBuffer - buffer;
    if (row == 0) {
      make_next(at, row, tiles[buffer], helpers);
    } else {
      const int before = row - L::kTileRows;
      const auto gate = gate_of(at, before, helpers);
      make_next(at, row, tiles[buffer], helpers);
      finish_tile(at, before, gate, helpers);
    }
    barrier_sync(barrier, L::kHalfThreads);
  }
  row -= L::kTileRows;
  finish_tile(at, row, gate_of(at, row, helpers), helpers);
}

/// A launch that has nothing to do must not be done before the one ahead of it: later kernels of the
/// step rely on that. The first run's blocks see to it.
template <typename L, int kRegisters>
__global__ void __maxnreg__(kRegisters) gdn_core_kernel(GdnCore args, StepView step) {
#if __CUDA_ARCH__ < 900
  if constexpr (L::kSlices > 1) return;  // never launched
#endif
  pdl_launch();
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<L>*>(memory);
  if constexpr (L::kSlices > 1) {
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < L::kHalves * L::kTilesMax; ++i) sums_init(&shared.all_sums[0][0] + i);
    }
    cluster_arrive();  // others may send
  }
  const int first = static_cast<int>(blockIdx.z) * L::kHalves;
  int num_rows[L::kHalves];
#pragma unroll
  for (int i = 0; i < L::kHalves; ++i) {
    num_rows[i] = first + i < step.num_runs ? step.runs[first + i].num_rows : 0;
  }
  if (num_rows[0] + num_rows[L::kHalves - 1] == 0) {
    if (first == 0) pdl_wait();
    return;
  }
  if constexpr (L::kSlices > 1) {
    cluster_wait();
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 0; i < L::kHalves * L::kTilesMax; ++i) {
        const int rows = num_rows[i / L::kTilesMax] - i % L::kTilesMax * L::kTileRows;
        const int count = max(0, min(L::kTileRows, rows));
        sums_expect(&shared.all_sums[0][0] + i, count * kSums * static_cast<int>(sizeof(float)));
      }
    }
  }
  // The same in all lanes, and the compiler sees it.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / kWarp), 0);
  const int half = warp / L::kHalfWarps;
  const int of_half = half == 0 ? num_rows[0] : num_rows[L::kHalves - 1];
  if (of_half == 0) return;
  const Place<L> at{args, shared, half, step.runs[first + half], half * num_rows[0]};
  if (L::kRowsMax > 1 && of_half > 1) {
    if constexpr (L::kRowsMax > 1) run_tiles(at, warp % L::kHalfWarps);
  } else {
    run_row(at, warp % L::kHalfWarps);
  }
}

template <int kSlices, int kRowsMax, int kHalves>
cudaError_t launch_core(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  using L = Layout<kSlices, kRowsMax, kHalves>;
  // Of a multiprocessor's registers, so that the block, or two, find room beside a projection's.
  constexpr int kRegisters = kHalves == 1 ? 120 : 128;
  const dim3 grid(static_cast<unsigned>(args.num_v_heads / args.num_k_heads * kSlices),
                  static_cast<unsigned>(args.num_k_heads),
                  static_cast<unsigned>((step.num_runs + kHalves - 1) / kHalves));
  const auto smem_bytes = static_cast<int>(shared_bytes<L>(step.num_rows));
  return launch_chained<gdn_core_kernel<L, kRegisters>>({grid, L::kThreads, smem_bytes, kSlices},
                                                        stream, args, step);
}

template <int kSlices>
cudaError_t launch_slices(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  if (step.num_rows == 1) return launch_core<kSlices, 1, 1>(args, step, stream);
  if (step.num_rows <= 8) return launch_core<kSlices, 8, 1>(args, step, stream);
  return launch_core<kSlices, kGdnCoreRowsMax, kSlices>(args, step, stream);
}

}  // namespace
}  // namespace gdn

cudaError_t launch_gdn_core(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  if (step.num_rows < 1 || step.num_rows > kGdnCoreRowsMax ||
      args.num_v_heads % args.num_k_heads != 0) {
    return cudaErrorInvalidValue;
  }
  if (compute_capability() < 90) return gdn::launch_slices<1>(args, step, stream);
  return gdn::launch_slices<2>(args, step, stream);
}

}  // namespace sluice::cuda
