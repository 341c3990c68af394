// Implements skinny.h's linear and gate_up: a warp's part of the operands stays in shared memory, and tiles pass one after another.
//
// Kernel log: bench/results/h200/projections.md.
#include "ops/cuda/skinny.cuh"
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

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
  __device__ __forceinline__ void store(int tile, const JoinPlace& at, const PartSums& sums) const {
    const int n = tile * kRowGroup + at.row;
    if (at.row >= kRowGroup || n >= out.gate.num_out) return;
    float gate = sums.join(at.tile, at.row, at.m);
    float up = sums.join(at.tile, at.row + kRowGroup, at.m);
    if (!is_fp8(out.gate)) {
      gate = __fmul_rn(gate, out.gate.row_factors[n]);
      up = __fmul_rn(up, out.up.row_factors[n]);
    }
    const bf16 value = narrow(round_bf16(silu(round_bf16(gate))) * round_bf16(up));
    if (out.values != nullptr) out.values[at.m * out.values_stride + n] = value;
    if (out.operands == nullptr) return;
    const uint32_t operand = operands_of(value.bits);
    if (is_out_of_range(operand)) raise_flag(range_flag);
    out.operands[at.m * out.operands_stride + operand_place(n)] = static_cast<uint16_t>(operand);
  }
};

/// A warp's units in order: tile after tile, stretch after stretch of its part.
struct Cursor {
  int tile;
  int first = 0;  // pair of the part
};

template <typename Work>
__device__ __forceinline__ void issue_next(const SkinnyPlan& plan, const Work& work, int last_tile,
                                           const Part& part, WarpRing* ring, Cursor* cursor) {
  if (cursor->tile >= last_tile || part.count == 0) return;
  const Tile tile = work.tile(plan, cursor->tile);
  const int left = part.count - cursor->first;
  const int pairs = left < plan.unit_pairs ? left : plan.unit_pairs;
  const int group_bytes = pairs * (tile.a_scales != nullptr ? kPairBytes<true> : kPairBytes<false>);
  const int offset = (part.first + cursor->first) *
                     (tile.a_scales != nullptr ? kPairBytes<true> : kPairBytes<false>);
  const bool has_b = tile.b != nullptr;
  ring->issue(tile.a + offset, group_bytes, has_b ? tile.b + offset : nullptr,
              has_b ? group_bytes : 0, pairs * work.pair_bytes());
  cursor->first += pairs;
  if (cursor->first < part.count) return;
  cursor->first = 0;
  ++cursor->tile;
}

/// Copies this warp's part of the rows' operands to shared memory.
__device__ __forceinline__ void copy_operands(const SkinnyPlan& plan, const SkinnyInput& in,
                                              const Part& part, const SkinnyShared& shared) {
  if (part.count == 0) return;
  const uint32_t barrier = shared_address(shared.barriers + plan.num_slots);
  copy_rows(shared_address(shared.operands), operand_stride(plan.operand_pairs),
            part.count * kScaleBlock * 2, in.num_rows, barrier,
            [&](int m) { return in.operands + input_row(in, m) + part.first * kScaleBlock; });
  barrier_wait(barrier, 0);
}

template <typename Work>
struct ResidentArgs {
  SkinnyPlan plan;
  Work work;
  SkinnyInput in;
};

template <typename Work>
__global__ void __launch_bounds__(kSkinnyThreads, 1)
    resident_kernel(const __grid_constant__ ResidentArgs<Work> args) {
  extern __shared__ __align__(128) uint8_t memory[];
  const SkinnyPlan& plan = args.plan;
  const Work& work = args.work;
  const SkinnyShared shared(memory, plan);
  const TileRange tiles = tiles_of_block(plan);
  const Part part = part_of_warp(plan.num_pairs);
  init_warp_barriers(shared_address(shared.barriers), plan.num_slots + plan.operand_slots);
  WarpRing ring(shared.ring, shared.barriers, plan.num_slots);
  Cursor cursor = {tiles.first};
  pdl_launch();
#pragma unroll 1
  for (int i = 0; i < plan.num_slots; ++i) {
    issue_next(plan, work, tiles.last, part, &ring, &cursor);
  }
  Tile tile = {};
  PartScales scales = {};
  if (tiles.first < tiles.last) {
    tile = work.tile(plan, tiles.first);
    scales.load(tile, part);
  }

  pdl_wait();
  copy_operands(plan, args.in, part, shared);
  const uint8_t* row =
      operands_of_lane(shared.operands, operand_stride(plan.operand_pairs), args.in.num_rows);
  PartSums sums(shared.sums, plan.joined_tiles, args.in.num_rows);
  int joined = 0;
#pragma unroll 1
  for (int t = tiles.first; t < tiles.last; ++t) {
    const bool fp8 = tile.a_scales != nullptr;
    const bool has_b = tile.b != nullptr;
    const PartScales now = scales;
    if (t + 1 < tiles.last) {
      tile = work.tile(plan, t + 1);
      scales.load(tile, part);
    }
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
      issue_next(plan, work, tiles.last, part, &ring, &cursor);
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
  plan->joined_tiles = num_rows == 1 ? 9 : kTileRows / num_rows;
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

int row_groups(const PackedWeight& w) {
  return (w.num_out + kRowGroup - 1) / kRowGroup;
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
