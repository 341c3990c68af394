// Implements skinny.h's residual, and linears of inputs that do not fit: K outermost, up to three tiles of sums in registers, operands copied on the way.
//
// Kernel log: bench/results/h200/projections.md.
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

constexpr int kTilesAtOnce = 3;

struct StreamedArgs {
  SkinnyPlan plan;
  SkinnyOutput output;
  SkinnyInput in;
};

/// A warp's units in order: batch of tiles, stretch of its part, tile.
struct Cursor {
  int batch = 0;  // its first tile
  int first = 0;  // pair of the part
  int tile = 0;   // in the batch

  __device__ __forceinline__ void advance(int num_tiles, const Part& part, int unit_pairs) {
    ++tile;
    if (tile < kTilesAtOnce && batch + tile < num_tiles) return;
    tile = 0;
    first += unit_pairs;
    if (first < part.count) return;
    first = 0;
    batch += kTilesAtOnce;
  }
};

/// Sums of a tile and the scales that belong to it.
struct TileSums {
  float acc[4];
  PartScales scales;
};

template <bool kFp8, bool kAdds>
class Block {
 public:
  __device__ Block(const StreamedArgs& args, const SkinnyShared& shared)
      : plan_(args.plan),
        args_(args),
        groups_(tiles_of_block(args.plan)),
        part_(part_of_warp(args.plan.num_pairs)),
        num_tiles_((groups_.last - groups_.first + kGroupsPerTile - 1) / kGroupsPerTile),
        ring_(shared.ring, shared.barriers, args.plan.num_slots),
        operands_(shared.operands),
        operand_barriers_(shared_address(shared.barriers + args.plan.num_slots)),
        sums_(shared.sums, args.plan.operand_bytes / static_cast<int>(sizeof(float)), 0,
              args.in.num_rows) {}

  __device__ __forceinline__ void run() {
    if (plan_.pairs) pair_arrive();
    pdl_launch();
    // One unit in flight at a time: what the kernels ahead still read would queue behind more.
#pragma unroll 1
    for (int i = 0; i < plan_.num_slots; ++i) {
      if (i > 0) ring_.await_issued_before(i);
      if (!issue<false>()) break;
    }
    const Cursor in_ring = cursor_;
#pragma unroll 1
    for (int i = 0; i < plan_.late_units; ++i) issue<true>();
    cursor_ = in_ring;
    TileSums tiles[kTilesAtOnce];
    begin_batch(0, tiles);
    pdl_wait();
    if (plan_.pairs) pair_wait();
#pragma unroll 1
    for (int batch = 0; batch < num_tiles_; batch += kTilesAtOnce) {
      if (batch > 0) {
        order_before_copies();  // the sums lay where operands come
        begin_batch(batch, tiles);
      }
      const float old = residual_of(static_cast<int>(threadIdx.x), batch);
      sum_batch(batch, tiles);
      __syncthreads();
      store_batch(batch, old);
      __syncthreads();  // the sums' memory is written again
    }
  }

 private:
  static constexpr int kGroupsPerTile = kFp8 ? 2 : 1;

  __device__ __forceinline__ int group(int tile) const {
    return groups_.first + tile * kGroupsPerTile;
  }
  __device__ __forceinline__ bool has_b(int tile) const {
    return kFp8 && group(tile) + 1 < groups_.last;
  }
  __device__ __forceinline__ Tile tile_at(int tile) const {
    return tile_of_groups(plan_, args_.output.weight, group(tile), has_b(tile));
  }

  /// The next unit into the ring, or only into the L2. False if none is left.
  template <bool kAsksL2>
  __device__ __forceinline__ bool issue() {
    const int i = cursor_.batch + cursor_.tile;
    if (part_.count == 0 || i >= num_tiles_) return false;
    const Tile tile = tile_at(i);
    const int num_bytes = pairs_from(cursor_.first) * kPairBytes<kFp8>;
    const int offset = (part_.first + cursor_.first) * kPairBytes<kFp8>;
    const uint8_t* b = tile.b == nullptr ? nullptr : tile.b + offset;
    const int b_bytes = tile.b == nullptr ? 0 : num_bytes;
    if (kAsksL2) {
      WarpRing::ask_l2(tile.a + offset, num_bytes, b, b_bytes);
    } else {
      ring_.issue(tile.a + offset, num_bytes, b, b_bytes, plan_.slot_bytes);
    }
    cursor_.advance(num_tiles_, part_, plan_.unit_pairs);
    return true;
  }
  /// Pairs of the unit that begins at pair `first` of the part.
  __device__ __forceinline__ int pairs_from(int first) const {
    const int left = part_.count - first;
    return left < plan_.unit_pairs ? left : plan_.unit_pairs;
  }

  __device__ __forceinline__ void begin_batch(int batch, TileSums (&tiles)[kTilesAtOnce]) {
#pragma unroll
    for (int i = 0; i < kTilesAtOnce; ++i) {
#pragma unroll
      for (float& sum : tiles[i].acc) sum = 0.0f;
      if (batch + i < num_tiles_) tiles[i].scales.load(tile_at(batch + i), part_);
    }
  }

  /// Copies the operands of the unit at `first`; units take the slots in turn.
  __device__ __forceinline__ void copy_unit(int first) {
    if (first >= part_.count) return;
    const SkinnyInput& in = args_.in;
    const uint32_t barrier = operand_barriers_ + 8 * copy_slot_;
    const uint8_t* to = operand_slot(copy_slot_);
    const int stride = operand_stride(plan_.operand_pairs);
    const int num_bytes = pairs_from(first) * kScaleBlock * 2;
    const auto row_start = [&](int m) {
      return in.operands + input_row(in, m) + (part_.first + first) * kScaleBlock;
    };
    if (plan_.pairs) {
      copy_rows_to_pair(shared_address(to), stride, num_bytes, in.num_rows, barrier, row_start);
    } else {
      copy_rows(shared_address(to), stride, num_bytes, in.num_rows, barrier, row_start);
    }
    if (++copy_slot_ == plan_.operand_slots) copy_slot_ = 0;
  }
  __device__ __forceinline__ const uint8_t* operand_slot(int slot) const {
    return operands_ + slot * args_.in.num_rows * operand_stride(plan_.operand_pairs);
  }

  __device__ __forceinline__ void sum_batch(int batch, TileSums (&tiles)[kTilesAtOnce]) {
#pragma unroll 1
    for (int i = 0; i < plan_.operand_slots; ++i) copy_unit(i * plan_.unit_pairs);
#pragma unroll 1
    for (int first = 0; first < part_.count; first += plan_.unit_pairs) {
      barrier_wait(operand_barriers_ + 8 * read_slot_, read_parity_);
      const uint8_t* operands = operands_of_lane(
          operand_slot(read_slot_), operand_stride(plan_.operand_pairs), args_.in.num_rows);
#pragma unroll 1
      for (int i = 0; i < kTilesAtOnce; ++i) {  // the tile at hand is always tiles[0]
        if (batch + i < num_tiles_) sum_unit(has_b(batch + i), first, operands, &tiles[0]);
        const TileSums done = tiles[0];
        tiles[0] = tiles[1];
        tiles[1] = tiles[2];
        tiles[2] = done;
      }
      __syncwarp();
      if (++read_slot_ == plan_.operand_slots) {
        read_slot_ = 0;
        read_parity_ ^= 1;
      }
      copy_unit(first + plan_.operand_slots * plan_.unit_pairs);
    }
#pragma unroll
    for (int i = 0; i < kTilesAtOnce; ++i) {
      if (batch + i < num_tiles_) sums_.write(i, tiles[i].acc);
    }
  }

  __device__ __forceinline__ void sum_unit(bool with_b, int first, const uint8_t* operands,
                                           TileSums* tile) {
    const uint8_t* a = ring_.acquire();
    const int count = pairs_from(first);
    const PairPlace at = {a, with_b ? a + count * kPairBytes<kFp8> : a, operands, first};
    add_unit<kFp8, false>(count, at, tile->scales, tile->acc);
    ring_.release(plan_.slot_bytes);
    issue<false>();
  }

  /// Where output `i` of a batch goes; null when there is none.
  __device__ __forceinline__ bf16* place(int i, int batch, int* n) const {
    const JoinPlace at(i, plan_);
    if (at.tile >= kTilesAtOnce || batch + at.tile >= num_tiles_ || at.m >= args_.in.num_rows) {
      return nullptr;
    }
    if (at.row >= kRowGroup && !has_b(batch + at.tile)) return nullptr;
    *n = group(batch + at.tile) * kRowGroup + at.row;
    if (*n >= args_.output.weight.num_out) return nullptr;
    return args_.output.out + at.m * args_.output.stride + *n;
  }
  __device__ __forceinline__ float residual_of(int i, int batch) const {
    int n;
    const bf16* from = kAdds ? place(i, batch, &n) : nullptr;
    if (from == nullptr) return 0.0f;
    return widen(bf16{__ldcg(reinterpret_cast<const uint16_t*>(from))});
  }
  /// `old`: this thread's first residual.
  __device__ __forceinline__ void store_batch(int batch, float old) const {
    const int num_places = (kTilesAtOnce * kTileRows) << plan_.row_shift;
    for (int i = static_cast<int>(threadIdx.x); i < num_places; i += kSkinnyThreads) {
      int n;
      bf16* to = place(i, batch, &n);
      if (to == nullptr) continue;
      const JoinPlace at(i, plan_);
      float y = sums_.join(at.tile, at.row, at.m);
      if (!kFp8) y = __fmul_rn(y, args_.output.weight.row_factors[n]);
      if (kAdds) {
        if (i >= kSkinnyThreads) old = residual_of(i, batch);
        y = old + round_bf16(y);
      }
      *to = narrow(y);
    }
  }

  const SkinnyPlan& plan_;
  const StreamedArgs& args_;
  const TileRange groups_;
  const Part part_;
  const int num_tiles_;
  WarpRing ring_;
  const uint8_t* operands_;
  uint32_t operand_barriers_;
  PartSums sums_;
  Cursor cursor_;  // of what is issued next
  int copy_slot_ = 0;
  int read_slot_ = 0;
  uint32_t read_parity_ = 0;
};

template <bool kFp8, bool kAdds>
__global__ void __maxnreg__(kSkinnyRegisters)
    streamed_kernel(const __grid_constant__ StreamedArgs args) {
  extern __shared__ __align__(128) uint8_t memory[];
  const SkinnyShared shared(memory, args.plan);
  init_warp_barriers(shared_address(shared.barriers),
                     args.plan.num_slots + args.plan.operand_slots);
  Block<kFp8, kAdds>(args, shared).run();
}

/// Units that a warp asks into the L2 when its ring is full, if that is all that is left: a small weight behind a core, which has time.
constexpr int kLateUnitsMax = 4;
/// Stretches of the operands in shared memory, at most: the ring needs the room more.
constexpr int kOperandSlots = 2;

bool plan_streamed(const SkinnyMachine& machine, int num_rows, const PackedWeight& w, bool fp8,
                   SkinnyPlan* plan) {
  plan_tiles(machine, (w.num_out + kRowGroup - 1) / kRowGroup, w.num_in, plan);
  plan->unit_pairs = kUnitPairsMax;
  plan->slot_bytes = plan->unit_pairs * kPairBytes<false>;
  plan->joined_tiles = kTilesAtOnce;
  plan->sums_apart = false;
  plan->operand_pairs = plan->unit_pairs;
  const int part_pairs = (plan->num_pairs + kNumParts - 1) / kNumParts;
  const int num_units = (part_pairs + plan->unit_pairs - 1) / plan->unit_pairs;
  plan->operand_slots = num_units < kOperandSlots ? num_units : kOperandSlots;
  if (!plan_shared(machine, num_rows, 1, plan->slot_bytes, plan)) return false;
  const int groups = plan->tiles_per_block + (plan->more_tiles > 0 ? 1 : 0);
  const int tiles = fp8 ? (groups + 1) / 2 : groups;
  // A place that is filled twice would need the other block's word.
  plan->pairs = can_pair(machine, num_rows) && num_units <= plan->operand_slots &&
                tiles <= kTilesAtOnce && plan->tiles_per_block > 0;
  const int late = tiles * num_units - plan->num_slots;
  plan->late_units = late > 0 && late <= kLateUnitsMax ? late : 0;
  return true;
}

template <bool kFp8, bool kAdds>
cudaError_t launch(const SkinnyMachine& machine, const SkinnyInput& input,
                   const SkinnyOutput& output, cudaStream_t stream) {
  StreamedArgs args = {{}, output, input};
  if (!plan_streamed(machine, input.num_rows, output.weight, kFp8, &args.plan)) {
    return cudaErrorInvalidConfiguration;
  }
  return launch_chained<streamed_kernel<kFp8, kAdds>>(launch_of(machine, args.plan), stream, args);
}

}  // namespace

cudaError_t launch_streamed(const SkinnyMachine& machine, const SkinnyInput& input,
                            const SkinnyOutput& output, bool adds, cudaStream_t stream) {
  if (!is_acceptable(input, output.weight.num_in)) return cudaErrorInvalidValue;
  if (output.weight.scales != nullptr) {
    return adds ? launch<true, true>(machine, input, output, stream)
                : launch<true, false>(machine, input, output, stream);
  }
  return adds ? launch<false, true>(machine, input, output, stream)
              : launch<false, false>(machine, input, output, stream);
}

cudaError_t launch_skinny_residual(const SkinnyMachine& machine, const SkinnyInput& input,
                                   const SkinnyOutput& output, cudaStream_t stream) {
  return launch_streamed(machine, input, output, true, stream);
}

}  // namespace sluice::cuda
