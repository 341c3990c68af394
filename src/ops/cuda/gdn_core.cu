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
#include "ops/cuda/fragments.cuh"
#include "ops/cuda/gdn_core_block.cuh"
#include "ops/cuda/gdn_core_conv.cuh"
#include "ops/cuda/gdn_core_rule.cuh"
#include "ops/cuda/pdl.cuh"

namespace sluice::cuda {
namespace gdn {
namespace {

/// The gate's factor of a pair of columns.
__device__ __forceinline__ float2 silu_pair(uint32_t z) {
  return make_float2(silu_unbranched(low_bf16(z)), silu_unbranched(high_bf16(z)));
}

/// Norm, gate and store.
template <typename L>
__device__ __forceinline__ void norm_rows(const GdnCore& args, const Place& at, Shared<L>& shared,
                                          int first, uint32_t z_first) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int p = 0; p < L::kPairsOfLane; ++p) {
    const unsigned dim = at.slice * L::kColumns + 2 * (p * kWarp + lane);
    const bf16* z = at.z + at.head * kHeadDim + dim;
    bf16* core = at.core + at.head * kHeadDim + dim;
    const float2 norm = *reinterpret_cast<const float2*>(args.norm + dim);
    const int z_stride = static_cast<int>(args.z.stride);
    const int core_stride = static_cast<int>(args.core.stride);
    float2 gate = silu_pair(p == 0 ? z_first : load_pair(z + first * z_stride));
    if constexpr (L::kSlices > 1) sums_wait(&shared.all_sums);
#pragma unroll 1
    for (int row = first; row < at.num_rows; row += L::kWarps) {
      const int next = row + L::kWarps;
      const uint32_t z_next = next < at.num_rows ? load_pair(z + next * z_stride) : 0u;
      const auto& sums = shared.rows[row].sums;
      const float squares = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      const float inverse = inverse_root(squares / kHeadDim + args.eps);
      const uint32_t o =
          reinterpret_cast<const uint32_t*>(shared.rows[row].values)[p * kWarp + lane];
      const uint32_t n = narrow_pair(low_bf16(o) * inverse, high_bf16(o) * inverse);
      const uint32_t y = narrow_pair(norm.x * low_bf16(n), norm.y * high_bf16(n));
      const uint32_t pair = narrow_pair(low_bf16(y) * gate.x, high_bf16(y) * gate.y);
      if (args.operands == nullptr) {
        *reinterpret_cast<uint32_t*>(core + row * core_stride) = pair;
      } else {
        const uint32_t operand = operands_of(pair);
        if (is_out_of_range(operand)) raise_flag(args.range_flag);
        *reinterpret_cast<uint32_t*>(at.operands + row * args.num_v_heads * kHeadDim +
                                     operand_place(at.head * kHeadDim + static_cast<int>(dim))) =
            operand;
      }
      gate = silu_pair(z_next);
    }
  }
}

/// norm_rows' weights come from far away and are wanted at the very end.
template <typename L>
__device__ __forceinline__ void prefetch_norm(const GdnCore& args, const Place& at) {
  const float* from = args.norm + at.slice * L::kColumns + threadIdx.x % L::kColumns;
  asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
}

template <typename L>
__device__ __forceinline__ uint32_t load_first_z(const GdnCore& args, const Place& at, int row) {
  if (row >= at.num_rows) return 0u;
  return load_pair(at.z + row * static_cast<int>(args.z.stride) + at.head * kHeadDim +
                   at.slice * L::kColumns + 2 * (threadIdx.x % kWarp));
}

template <typename L>
__device__ __forceinline__ void consume(const GdnCore& args, const Place& at, Shared<L>& shared) {
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned offset = (warp % kWarpsOverK * 32 + lane / 8 * kRowsOfK) * kHeadDim +
                          at.slice * L::kColumns + warp / kWarpsOverK * kColumnsOfWarp +
                          lane % 8 * kColumnsOfThread;
  StateTile state;
  state.load(at.state + offset);
  const bool converts = threadIdx.x < kChannelsQk;  // all of them where a head is cut in two
  QkConv conv(args, at);
  const int first = L::kWarps - 1 - static_cast<int>(warp);  // rows go round, the helper has row 0
  prefetch_norm<L>(args, at);
  uint32_t z_first = 0u;
  pdl_wait();
#pragma unroll 1
  for (int row = 0; row < at.num_rows; row += kTileRows) {
    const int count = min(kTileRows, at.num_rows - row);
    if (row > 0) barrier_sync(kTileDone, L::kThreads);
    if (converts) conv.tile(args, row, count, shared);
    if (row == 0) {
      z_first = load_first_z<L>(args, at, first);
      if constexpr (L::kSlices > 1) cluster_wait();
    }
    barrier_sync(kTileDone, L::kThreads);
    recur(state, shared, at, at.checkpoint + offset, row, count);
  }
  // The state's stores keep the way to shared memory busy: not before the sums are sent.
  barrier_sync(kValuesDone, L::kThreads);
  if (first < at.num_rows) norm_rows(args, at, shared, first, z_first);
  state.store(at.state + offset);
  advance_ring(args, at, shared, static_cast<int>(warp));
}

template <typename L>
__device__ __forceinline__ void help(const GdnCore& args, const Place& at, Shared<L>& shared) {
  const unsigned lane = threadIdx.x % kWarp;
  ValueConv<L> conv(args, at, lane);
  const float exp_A = expf(args.A_log[at.head]);
  const float dt_bias = args.dt_bias[at.head];
  pdl_wait();
  // While the consumers work on a tile the helper prepares the next.
  const auto prepare = [&](int row, int count) {
    const int mine = row + min(static_cast<int>(lane), count - 1);
    const float a = widen(at.a[mine * static_cast<int>(args.a.stride)]);
    const float b = widen(at.b[mine * static_cast<int>(args.b.stride)]);
    conv.tile(args, row, count, shared);
    if (static_cast<int>(lane) < count) shared.rows[mine].gate = gates_of(a, b, dt_bias, exp_A);
  };
  int row = 0;
  prepare(0, min(kTileRows, at.num_rows));
  const uint32_t z_first = load_first_z<L>(args, at, 0);
  barrier_sync(kTileDone, L::kThreads);
  leave_old_columns(args, at, shared);
  for (row = kTileRows; row < at.num_rows; row += kTileRows) {
    const int count = min(kTileRows, at.num_rows - row);
    fetch_tile(args, at, row, count, shared);
    prepare(row, count);
    fetch_wait();
    barrier_sync(kTileDone, L::kThreads);
    barrier_sync(kTileDone, L::kThreads);
  }
  barrier_sync(kValuesDone, L::kThreads);
  norm_rows(args, at, shared, 0, z_first);
}

/// A launch that has nothing to do must not be done before the one ahead of it: later kernels of the
/// step rely on that. The first run's blocks see to it.
template <typename L, int kRegisters>
__global__ void __maxnreg__(kRegisters) gdn_core_kernel(GdnCore args, StepView step) {
#if __CUDA_ARCH__ < 900
  if constexpr (L::kSlices > 1) return;  // never launched
#endif
  pdl_launch();
  const DeviceRun run = step.runs[blockIdx.z];
  if (run.num_rows == 0) {
    if (blockIdx.z == 0) pdl_wait();
    return;
  }
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<Shared<L>*>(memory);
  if constexpr (L::kSlices > 1) {
    if (threadIdx.x == 0) {
      sums_init(&shared.all_sums, run.num_rows * kSums * static_cast<int>(sizeof(float)));
    }
    __syncthreads();
    cluster_arrive();  // others may send
  }
  Place at;
  at.num_rows = run.num_rows;
  at.position = run.position;
  const int boundary =
      (run.position + run.num_rows) / static_cast<int>(kGdnChunk) * static_cast<int>(kGdnChunk);
  at.checkpoint_rows = run.checkpoint_slot == kNoSlot ? 0 : max(0, boundary - run.position);
  at.slice = blockIdx.x;
  at.head = blockIdx.y;
  at.key_head = at.head * args.num_k_heads / args.num_v_heads;
  at.qkv = args.qkv.data + run.first_row * args.qkv.stride;
  at.z = args.z.data + run.first_row * args.z.stride;
  at.a = args.a.data + run.first_row * args.a.stride + at.head;
  at.b = args.b.data + run.first_row * args.b.stride + at.head;
  at.core = args.core.data + run.first_row * args.core.stride;
  at.operands = args.operands + static_cast<int64_t>(run.first_row) * args.num_v_heads * kHeadDim;
  at.ring = args.conv.data + run.slot * args.conv.slot_stride;
  at.checkpoint_ring = args.conv.data + run.checkpoint_slot * args.conv.slot_stride;
  const unsigned state_at = at.head * kHeadDim * kHeadDim;
  at.state = args.state.data + run.slot * args.state.slot_stride + state_at;
  at.checkpoint = args.state.data + run.checkpoint_slot * args.state.slot_stride + state_at;
  at.ticket = args.tickets + blockIdx.z * args.num_k_heads + at.key_head;
  at.channels = static_cast<unsigned>(args.conv.num_channels);
  at.is_first = at.slice == 0 && at.head * args.num_k_heads % args.num_v_heads == 0;
  at.v_channel = (2 * args.num_k_heads + at.head) * kHeadDim + at.slice * L::kColumns;
  if (threadIdx.x < L::kConsumers) {
    consume<L>(args, at, shared);
  } else {
    help<L>(args, at, shared);
  }
}

template <int kSlices, int kRegisters>
cudaError_t launch_core(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  using L = Layout<kSlices>;
  const dim3 grid(kSlices, static_cast<unsigned>(args.num_v_heads),
                  static_cast<unsigned>(step.num_runs));
  const auto smem_bytes = static_cast<int>(shared_bytes<L>(step.num_rows));
  return launch_chained<gdn_core_kernel<L, kRegisters>>({grid, L::kThreads, smem_bytes, kSlices},
                                                        stream, args, step);
}

}  // namespace
}  // namespace gdn

cudaError_t launch_gdn_core(const GdnCore& args, const StepView& step, cudaStream_t stream) {
  if (step.num_rows < 1 || step.num_rows > kGdnCoreRowsMax ||
      args.num_v_heads % args.num_k_heads != 0) {
    return cudaErrorInvalidValue;
  }
  if (compute_capability() < 90) return gdn::launch_core<1, 80>(args, step, stream);
  return gdn::launch_core<2, 80>(args, step, stream);
}

}  // namespace sluice::cuda
