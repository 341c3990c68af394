// Implements ops/cuda/gdn_core.h: conv1d, gdn_gates, gdn_step and gated_rms_norm in one kernel.
//
// A block has 128 / kSlices value columns of one value head of one run; the kSlices blocks of a head
// are a cluster. In a block
//   consumers  own the state, in registers over the run's rows: a warp has 32 columns and 32 of the
//              128 rows of k. Four warps share a column; what they add up over k meets in shared
//              memory, once a row. Before a tile of 8 rows they make its q and k, a thread a channel.
//   helper     one warp more: gates and v of the tile ahead, and who writes the conv ring.
// At the end all warps norm, gate and store, a row each. The mean goes over the whole head, so blocks
// of a cluster send each other the squares' sums, by row and 32 columns, as tiles are done.
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

/// A run of one row: the consumers.
template <typename L>
__device__ __forceinline__ void consume_row(const Place<L>& at, int warp, Shared<L>& shared) {
  const StepPlace<L> my;
  const unsigned offset = my.offset(at.slice());
  StateTile state;
  state.load(at.state(at.run.slot) + offset);
  const bool converts = warp < kChannelsQk / kWarp;  // all of them where a head is cut in two
  if constexpr (L::kSlices > 1) cluster_wait();      // empties the L1 cache
  const QkConv<L> conv(at);
  prefetch_norm(at);
  pdl_wait();
  if (converts) conv.row(shared.work.step);
  barrier_sync(kInputsDone, L::kThreads);
  recur_once(state, my, shared, at.slice());
  // The state's stores keep the way to shared memory busy: not before the sums are sent.
  barrier_sync(kValuesDone, L::kThreads);
  if (at.checkpoint_rows() > 0) state.store(at.state(at.run.checkpoint_slot) + offset);
  state.store(at.state(at.run.slot) + offset);
  advance_ring(at, shared, warp);
}

/// And the helper: gates and v, who writes the conv ring, the norm.
template <typename L>
__device__ __forceinline__ void help_row(const Place<L>& at, Shared<L>& shared) {
  const ValueConv<L> conv(at);
  const float exp_A = expf(at.args.A_log[at.head()]);
  const float dt_bias = at.args.dt_bias[at.head()];
  pdl_wait();
  const float a = widen(at.row_of(at.args.a, 0)[at.head()]);
  const float b = widen(at.row_of(at.args.b, 0)[at.head()]);
  conv.row(reinterpret_cast<uint32_t*>(shared.rows[0].values));
  if (threadIdx.x % kWarp == 0) shared.rows[0].gate = gates_of(a, b, dt_bias, exp_A);
  Gate<L, 1> gate;
  gate.load(at);
  barrier_sync(kInputsDone, L::kThreads);
  leave_old_columns(at, shared);
  barrier_sync(kValuesDone, L::kThreads);
  norm_rows(at, shared, gate);
}

/// A run of several rows. All warps.
template <typename L>
__device__ __forceinline__ void run_tiles(const Place<L>& at, int warp, Shared<L>& shared) {
  const bool consumes = warp < L::kConsumers / kWarp;
  const TilePlace<L> my;
  const unsigned offset = my.offset(at.slice());
  SharedTile<L>& tile = shared.work.tile;
  StateTile state;
  float exp_A = 0.0f, dt_bias = 0.0f;
  if (consumes) state.load(at.state(at.run.slot) + offset);
  if constexpr (L::kSlices > 1) cluster_wait();  // empties the L1 cache
  if (consumes) {
    TileConv<L>::prefetch(at);
  } else {
    exp_A = expf(at.args.A_log[at.head()]);
    dt_bias = at.args.dt_bias[at.head()];
  }
  prefetch_norm(at);
  pdl_wait();
  fetch_inputs(at, 0, min(L::kTileRows, at.num_rows()), tile);
  if (!consumes) make_gates(at, exp_A, dt_bias, shared);
#pragma unroll 1
  for (int row = 0; row < at.num_rows(); row += L::kTileRows) {
    const int count = min(L::kTileRows, at.num_rows() - row);
    cp_async_wait();
    barrier_sync(kInputsDone, L::kThreads);
    if (consumes) {
      TileConv<L>::rows_of_qk(at, count, tile);
      TileConv<L>::rows_of_v(at, row, count, shared);
    }
    barrier_sync(kValuesDone, L::kThreads);
    const int next = row + L::kTileRows;
    if (next < at.num_rows()) {
      fetch_inputs(at, next, min(L::kTileRows, at.num_rows() - next), tile);
    }
    if (consumes) {
      make_factors(row, count, shared);
      recur(state, my, at, row, count, shared);
    } else if (row == 0) {
      leave_old_columns(at, shared);
    }
  }
  Gate<L, L::kRowsOfWarp> gate;
  gate.load(at);
  barrier_sync(kInputsDone, L::kThreads);
  share_sums(at, shared);
  if constexpr (L::kSlices == 1) barrier_sync(kValuesDone, L::kThreads);
  norm_rows(at, shared, gate);
  if (!consumes) return;
  state.store(at.state(at.run.slot) + offset);
  advance_ring(at, shared, warp);
}

/// A launch that has nothing to do must not be done before the one ahead of it: later kernels of the
/// step rely on that. The first run's blocks see to it.
template <typename L, int kRegisters>
__global__ void __maxnreg__(kRegisters) gdn_core_kernel(GdnCore args, StepView step) {
#if __CUDA_ARCH__ < 900
  if constexpr (L::kSlices > 1) return;  // never launched
#endif
  pdl_launch();
  const Place<L> at{args, step.runs[blockIdx.z]};
  if (at.num_rows() == 0) {
    if (blockIdx.z == 0) pdl_wait();
    return;
  }
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<L>*>(memory);
  if constexpr (L::kSlices > 1) {
    if (threadIdx.x == 0) {
      sums_init(&shared.all_sums, at.num_rows() * kSums * static_cast<int>(sizeof(float)));
    }
    __syncthreads();
    cluster_arrive();  // others may send
  }
  // The same in all lanes, and the compiler sees it.
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / kWarp), 0);
  if constexpr (L::kRowsMax > 1) {
    if (at.num_rows() > 1) {
      run_tiles(at, warp, shared);
      return;
    }
  }
  if (warp < L::kConsumers / kWarp) {
    consume_row(at, warp, shared);
  } else {
    help_row(at, shared);
  }
}

template <int kSlices, int kRowsMax, int kRegisters>
cudaError_t launch_core(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  using L = Layout<kSlices, kRowsMax>;
  const dim3 grid(static_cast<unsigned>(args.num_v_heads / args.num_k_heads * kSlices),
                  static_cast<unsigned>(args.num_k_heads), static_cast<unsigned>(step.num_runs));
  const auto smem_bytes = static_cast<int>(shared_bytes<L>(step.num_rows));
  return launch_chained<gdn_core_kernel<L, kRegisters>>({grid, L::kThreads, smem_bytes, kSlices},
                                                        stream, args, step);
}

template <int kSlices>
cudaError_t launch_slices(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  if (step.num_rows == 1)
    return launch_core < kSlices, 1, kSlices == 1 ? 96 : 80 > (args, step, stream);
  if (step.num_rows <= 8)
    return launch_core < kSlices, 8, kSlices == 1 ? 96 : 80 > (args, step, stream);
  return launch_core<kSlices, kGdnCoreRowsMax, 96>(args, step, stream);
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
