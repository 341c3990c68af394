// What the skinny kernels' launches work out on the host.
#include "ops/cuda/skinny_launch.cuh"

namespace sluice::cuda {
namespace {

constexpr int kRingBytes = 24 << 10;  // a warp's, at most
constexpr int kSlotsMin = 2;
/// Left to the kernels between two projections, so that the next one's ring fills while they run.
constexpr int kSmemReserve = 28 << 10;

/// Places for `num_slots` slots; the bytes of it all.
int place(int num_rows, int num_slots, int ring_bytes, SkinnyPlan* plan) {
  plan->num_slots = num_slots;
  plan->ring_bytes = ring_bytes;
  plan->operand_bytes = plan->operand_slots * num_rows * operand_stride(plan->operand_pairs);
  plan->operands = kSkinnyWarps * ring_bytes;
  plan->barriers = plan->operands + kSkinnyWarps * plan->operand_bytes;
  const int end = plan->barriers + kSkinnyWarps * (num_slots + plan->operand_slots) *
                                       static_cast<int>(sizeof(uint64_t));
  plan->sums = plan->sums_apart ? end : plan->operands;
  if (!plan->sums_apart) return end;
  return end + 2 * kNumParts * part_floats(*plan, num_rows) * static_cast<int>(sizeof(float));
}

}  // namespace

bool is_acceptable(const SkinnyInput& in, int num_in) {
  return in.operands != nullptr && in.num_rows >= 1 && in.num_rows <= kSkinnyRowsMax &&
         num_in % kScaleBlock == 0;
}

void plan_tiles(const SkinnyMachine& machine, int num_tiles, int num_in, SkinnyPlan* plan) {
  plan->tiles_per_block = num_tiles / machine.num_sms;
  plan->more_tiles = num_tiles % machine.num_sms;
  plan->num_pairs = num_in / kScaleBlock;
  plan->tile_bytes = plan->num_pairs * kPairBytes<false>;
}

bool plan_shared(const SkinnyMachine& machine, int num_rows, int step_slots, int step_bytes,
                 SkinnyPlan* plan) {
  plan->row_shift = 0;
  while (1 << plan->row_shift < num_rows) ++plan->row_shift;
  const int steps_min = (kSlotsMin + step_slots - 1) / step_slots;
  int steps = kRingBytes / step_bytes;
  if (steps < steps_min) steps = steps_min;
  const int wanted = machine.smem_bytes - kSmemReserve;
  const auto bytes = [&] { return place(num_rows, steps * step_slots, steps * step_bytes, plan); };
  while (steps > steps_min && bytes() > wanted) --steps;
  plan->smem_bytes = bytes();
  return plan->smem_bytes <= machine.smem_bytes;
}

}  // namespace sluice::cuda
