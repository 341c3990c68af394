// Implements skinny.h's linear and gate_up: a warp's part of the operands stays in shared memory, and tiles pass one after another.
//
// Kernel log: bench/results/h200/projections.md.
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

SLUICE_HOST_DEVICE constexpr int row_groups(const PackedWeight& w) {
  return (w.num_out + kRowGroup - 1) / kRowGroup;
}

/// Tiles of one kind whose weights lie one behind the other.
struct TileRun {
  const uint8_t* a;  // where the next unit of the first row group lies
  int count;
  bool fp8;
  bool has_b;
};

/// Projections of one input, tile after tile through the outputs.
struct LinearWork {
  SkinnyOutput outputs[kSkinnyOutputsMax];
  int tile_end[kSkinnyOutputsMax];  // behind the last output: num_tiles
  static constexpr bool kF16Pairs = false;
  /// Of a tile: two row groups of FP8 or one of f16.
  SLUICE_HOST_DEVICE static constexpr int pair_bytes() { return kPairBytes<false>; }

  struct Place {
    int output;
    int local;  // tile inside the output
  };
  __device__ __forceinline__ Place place(int tile) const {
    int output = 0;
    int begin = 0;
#pragma unroll
    for (int i = 0; i + 1 < kSkinnyOutputsMax; ++i) {
      if (tile < tile_end[i]) break;
      output = i + 1;
      begin = tile_end[i];
    }
    return {output, tile - begin};
  }
  __device__ __forceinline__ Tile tile(const SkinnyPlan& plan, int tile) const {
    const Place at = place(tile);
    const PackedWeight& w = outputs[at.output].weight;
    if (!is_fp8(w)) return tile_of_groups(plan, w, at.local, false);
    const int group = 2 * at.local;
    return tile_of_groups(plan, w, group, (group + 1) * kRowGroup < w.num_out);
  }
  __device__ __forceinline__ TileRun run(const SkinnyPlan& plan, int tile) const {
    const Place at = place(tile);
    const PackedWeight& w = outputs[at.output].weight;
    const bool fp8 = is_fp8(w);
    const int group = fp8 ? 2 * at.local : at.local;
    const bool has_b = fp8 && (group + 1) * kRowGroup < w.num_out;
    // A last row group without a second one is a run of its own.
    const int count = has_b ? row_groups(w) / 2 - at.local : fp8 ? 1 : tile_end[at.output] - tile;
    return {w.data + static_cast<int64_t>(at.local) * plan.tile_bytes, count, fp8, has_b};
  }
  __device__ __forceinline__ const uint8_t* second(const SkinnyPlan& plan,
                                                   const TileRun& run) const {
    return run.a + plan.tile_bytes / 2;
  }
  __device__ __forceinline__ int stride(const SkinnyPlan& plan, const TileRun&) const {
    return plan.tile_bytes;
  }
  __device__ __forceinline__ void store(int tile, const JoinPlace& at, const PartSums& sums) const {
    const Place place_of_tile = place(tile);
    const SkinnyOutput& output = outputs[place_of_tile.output];
    const bool fp8 = is_fp8(output.weight);
    if (!fp8 && at.row >= kRowGroup) return;
    const int n = place_of_tile.local * (fp8 ? kTileRows : kRowGroup) + at.row;
    if (n >= output.weight.num_out) return;
    float y = sums.join(at.tile, at.row, at.m);
    if (!fp8) y = __fmul_rn(y, output.weight.row_factors[n]);
    output.out[at.m * output.stride + n] = narrow(y);
  }
};

/// A tile is a row group of gate and the same one of up.
struct GateUpWork {
  SkinnyGateUp out;
  int* range_flag;
  static constexpr bool kF16Pairs = true;
  SLUICE_HOST_DEVICE int pair_bytes() const {
    return 2 * (out.gate.scales != nullptr ? kPairBytes<true> : kPairBytes<false>);
  }

  __device__ __forceinline__ Tile tile(const SkinnyPlan& plan, int tile) const {
    Tile both = tile_of_groups(plan, out.gate, tile, false);
    const Tile up = tile_of_groups(plan, out.up, tile, false);
    both.b = up.a;
    both.b_scales = up.a_scales;
    return both;
  }
  __device__ __forceinline__ TileRun run(const SkinnyPlan& plan, int tile) const {
    TileRun run = {out.gate.data, row_groups(out.gate) - tile, is_fp8(out.gate), true};
    run.a += static_cast<int64_t>(tile) * stride(plan, run);
    return run;
  }
  __device__ __forceinline__ const uint8_t* second(const SkinnyPlan&, const TileRun& run) const {
    return run.a + (out.up.data - out.gate.data);
  }
  __device__ __forceinline__ int stride(const SkinnyPlan& plan, const TileRun& run) const {
    return run.fp8 ? plan.tile_bytes / 2 : plan.tile_bytes;
  }
  __device__ __forceinline__ void store(int tile, const JoinPlace& at, const PartSums& sums) const {
    const int n = tile * kRowGroup + at.row;
    if (at.row >= kRowGroup || n >= out.gate.num_out) return;
    float gate = sums.join(at.tile, at.row, at.m);
    float up = sums.join(at.tile, at.row + kRowGroup, at.m);
    if (!is_fp8(out.gate)) {
      gate = __fmul_rn(gate, out.gate.row_factors[n]);
      up = __fmul_rn(up, out.up.row_factors[n]);
    }
    const bf16 value = narrow(round_bf16(quick_silu(round_bf16(gate))) * round_bf16(up));
    if (out.values != nullptr) out.values[at.m * out.values_stride + n] = value;
    if (out.operands == nullptr) return;
    const uint32_t operand = operands_of(value.bits);
    if (is_out_of_range(operand)) raise_flag(range_flag);
    out.operands[at.m * out.operands_stride + operand_place(n)] = static_cast<uint16_t>(operand);
  }
};

/// A warp's units in order: tile after tile, stretch after stretch of its part. What is sent for next is at hand, because the lane that sends does little else.
template <typename Work>
class Sender {
 public:
  __device__ __forceinline__ Sender(const SkinnyPlan& plan, const Work& work,
                                    const TileRange& tiles, const Part& part)
      : plan_(plan),
        work_(work),
        num_pairs_(part.count),
        first_pair_(part.first),
        tile_(tiles.first),
        last_tile_(part.count == 0 ? tiles.first : tiles.last) {
    if (tile_ < last_tile_) begin_run();
  }

  /// Fills the ring's next slot. False if no unit is left.
  __device__ __forceinline__ bool issue(WarpRing* ring) {
    if (tile_ >= last_tile_) return false;
    const int left = num_pairs_ - first_;
    const int pairs = left < plan_.unit_pairs ? left : plan_.unit_pairs;
    const int num_bytes = pairs * pair_bytes();
    ring->issue(run_.a, num_bytes, work_.second(plan_, run_), run_.has_b ? num_bytes : 0,
                pairs * work_.pair_bytes());
    run_.a += num_bytes;
    first_ += pairs;
    if (first_ < num_pairs_) return true;
    first_ = 0;
    run_.a += work_.stride(plan_, run_) - num_pairs_ * pair_bytes();
    ++tile_;
    if (--run_.count == 0 && tile_ < last_tile_) begin_run();
    return true;
  }

 private:
  __device__ __forceinline__ void begin_run() {
    run_ = work_.run(plan_, tile_);
    run_.a += first_pair_ * pair_bytes();
  }
  __device__ __forceinline__ int pair_bytes() const {
    return run_.fp8 ? kPairBytes<true> : kPairBytes<false>;
  }
  const SkinnyPlan& plan_;
  const Work& work_;
  const int num_pairs_, first_pair_;  // of the part
  int tile_;
  const int last_tile_;
  int first_ = 0;  // pair of the part
  TileRun run_;
};

/// Copies this warp's part of the rows' operands to shared memory.
__device__ __forceinline__ void copy_operands(const SkinnyPlan& plan, const SkinnyInput& in,
                                              const Part& part, const SkinnyShared& shared) {
  if (part.count == 0) return;
  const uint32_t barrier = shared_address(shared.barriers + plan.num_slots);
  const uint32_t to = shared_address(shared.operands);
  const int stride = operand_stride(plan.operand_pairs);
  const int num_bytes = part.count * kScaleBlock * 2;
  const auto row_start = [&](int m) {
    return in.operands + input_row(in, m) + part.first * kScaleBlock;
  };
  if (plan.pairs) {
    copy_rows_to_pair(to, stride, num_bytes, in.num_rows, barrier, row_start);
  } else {
    copy_rows(to, stride, num_bytes, in.num_rows, barrier, row_start);
  }
  barrier_wait(barrier, 0);
}

template <typename Work>
struct ResidentArgs {
  SkinnyPlan plan;
  Work work;
  SkinnyInput in;
};

template <typename Work>
__global__ void __maxnreg__(kSkinnyRegisters)
    resident_kernel(const __grid_constant__ ResidentArgs<Work> args) {
  extern __shared__ __align__(128) uint8_t memory[];
  const SkinnyPlan& plan = args.plan;
  const Work& work = args.work;
  const SkinnyShared shared(memory, plan);
  const TileRange tiles = tiles_of_block(plan);
  const Part part = part_of_warp(plan.num_pairs);
  init_warp_barriers(shared_address(shared.barriers), plan.num_slots + plan.operand_slots);
  WarpRing ring(shared.ring, shared.barriers, plan.num_slots);
  if (plan.pairs) pair_arrive();
  pdl_launch();
  Sender<Work> sender(plan, work, tiles, part);
  // One unit in flight at a time: what the kernels ahead still read would queue behind more.
#pragma unroll 1
  for (int i = 0; i < plan.num_slots; ++i) {
    if (i > 0) ring.await_issued_before(i);
    if (!sender.issue(&ring)) break;
  }
  bool next_fp8 = false;
  bool next_has_b = false;
  PartScales scales = {};
  const auto look_at = [&](int t) {
    const Tile tile = work.tile(plan, t);
    next_fp8 = tile.a_scales != nullptr;
    next_has_b = tile.b != nullptr;
    scales.load(tile, part);
  };
  if (tiles.first < tiles.last) look_at(tiles.first);

  pdl_wait();
  if (plan.pairs) pair_wait();
  copy_operands(plan, args.in, part, shared);
  const uint8_t* row =
      operands_of_lane(shared.operands, operand_stride(plan.operand_pairs), args.in.num_rows);
  const int part_stride = part_floats(plan, args.in.num_rows);
  PartSums sums(shared.sums, part_stride, kNumParts * part_stride, args.in.num_rows);
  int joined = 0;
#pragma unroll 1
  for (int t = tiles.first; t < tiles.last; ++t) {
    const bool fp8 = next_fp8;
    const bool has_b = next_has_b;
    const PartScales now = scales;
    if (t + 1 < tiles.last) look_at(t + 1);
    float acc[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int first = 0; first < part.count; first += plan.unit_pairs) {
      const uint8_t* a = ring.acquire();
      const int left = part.count - first;
      const int count = left < plan.unit_pairs ? left : plan.unit_pairs;
      PairPlace at = {a, a, row + first * kScaleBlock * 2, first};
      if (fp8) {
        if (has_b) at.b += count * kPairBytes<true>;
        add_unit<true, true>(count, at, now, acc);
      } else {
        if (has_b) at.b += count * kPairBytes<false>;
        add_unit<false, Work::kF16Pairs>(count, at, now, acc);
      }
      ring.release(count * work.pair_bytes());
      sender.issue(&ring);
    }
    sums.write(joined++, acc);
    if (joined < plan.joined_tiles && t + 1 < tiles.last) continue;
    __syncthreads();
    const int num_places = (joined * kTileRows) << plan.row_shift;
    for (int i = static_cast<int>(threadIdx.x); i < num_places; i += kSkinnyThreads) {
      const JoinPlace at(i, plan);
      if (at.m < args.in.num_rows) work.store(t + 1 - joined + at.tile, at, sums);
    }
    sums.swap();
    joined = 0;
  }
}

/// The ring holds whole tiles' worth of units, so every round of it is like the first.
template <typename Work>
bool plan_resident(const SkinnyMachine& machine, int num_rows, const Work& work, int num_tiles,
                   int num_in, SkinnyPlan* plan) {
  plan_tiles(machine, num_tiles, num_in, plan);
  plan->operand_pairs = (plan->num_pairs + kNumParts - 1) / kNumParts;
  plan->operand_slots = 1;
  plan->pairs = can_pair(machine, num_rows);
  plan->sums_apart = true;
  plan->joined_tiles = num_rows == 1 ? 9 : num_rows > 4 ? 1 : kTileRows / num_rows;
  const bool is_even = plan->num_pairs % kNumParts == 0;
  for (int pairs = plan->operand_pairs < kUnitPairsMax ? plan->operand_pairs : kUnitPairsMax;
       pairs > 0; --pairs) {
    plan->unit_pairs = pairs;
    const bool is_whole = plan->operand_pairs % pairs == 0;  // then one unit is like the next
    const int units = is_whole ? 1 : (plan->operand_pairs + pairs - 1) / pairs;
    const int tile_pairs = is_even && !is_whole ? plan->operand_pairs : units * pairs;
    if (plan_shared(machine, num_rows, units, tile_pairs * work.pair_bytes(), plan)) return true;
  }
  return false;
}

template <typename Work>
cudaError_t launch_resident(const SkinnyMachine& machine, const SkinnyInput& in, const Work& work,
                            const SkinnyPlan& plan, cudaStream_t stream) {
  const ResidentArgs<Work> args = {plan, work, in};
  return launch_chained<resident_kernel<Work>>(launch_of(machine, plan), stream, args);
}

}  // namespace

cudaError_t launch_skinny_linear(const SkinnyMachine& machine, const SkinnyInput& input,
                                 const SkinnyOutput* outputs, int num_outputs,
                                 cudaStream_t stream) {
  const int num_in = outputs[0].weight.num_in;
  if (!is_acceptable(input, num_in)) return cudaErrorInvalidValue;
  LinearWork work = {};
  int num_tiles = 0;
  for (int i = 0; i < kSkinnyOutputsMax; ++i) {
    if (i < num_outputs) {
      work.outputs[i] = outputs[i];
      const int groups = row_groups(outputs[i].weight);
      num_tiles += outputs[i].weight.scales != nullptr ? (groups + 1) / 2 : groups;
    }
    work.tile_end[i] = num_tiles;
  }
  SkinnyPlan plan = {};
  if (plan_resident(machine, input.num_rows, work, num_tiles, num_in, &plan)) {
    return launch_resident(machine, input, work, plan, stream);
  }
  for (int i = 0; i < num_outputs; ++i) {
    const cudaError_t error = launch_streamed(machine, input, outputs[i], false, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_skinny_gate_up(const SkinnyMachine& machine, const SkinnyInput& input,
                                  const SkinnyGateUp& output, cudaStream_t stream) {
  if (!is_acceptable(input, output.gate.num_in)) return cudaErrorInvalidValue;
  const GateUpWork work = {output, machine.range_flag};
  SkinnyPlan plan = {};
  if (!plan_resident(machine, input.num_rows, work, row_groups(output.gate), output.gate.num_in,
                     &plan)) {
    return cudaErrorInvalidConfiguration;
  }
  return launch_resident(machine, input, work, plan, stream);
}

}  // namespace sluice::cuda
