#pragma once
// Draws that several blocks make together: classes and min-p, whose kept ids may be the whole vocabulary.

#include "ops/cuda/sample_classes.cuh"
#include "ops/cuda/sample_draw.cuh"

namespace sluice::cuda::sampling {

/// The lowest key that min-p keeps.
__device__ inline uint32_t lowest_key(float temperature, double floor) {
  uint32_t dropped = 0;
  if (!(floor > -INFINITY)) return 1;
  for (uint32_t bit = kNumKeys / 2; bit > 0; bit /= 2) {
    const uint32_t key = dropped | bit;
    if (key < kKeyInf && value_of(key) / temperature < floor) dropped = key;
  }
  return dropped + 1;
}

__device__ inline PartDraw join(const PartDraw& a, const PartDraw& b) {
  return {better(a.above, b.above), better(a.tied, b.tied), a.num_tied + b.num_tied};
}

__device__ inline PartDraw block_join(PartDraw part) {
  __shared__ PartDraw per_warp[kWarps];
  part.above = warp_best(part.above);
  part.tied = warp_best(part.tied);
  part.num_tied = __reduce_add_sync(kAllLanes, part.num_tied);
  if (lane_id() == 0) per_warp[warp_id()] = part;
  __syncthreads();
  part = per_warp[0];
#pragma unroll 1
  for (int w = 1; w < kWarps; ++w) part = join(part, per_warp[w]);
  __syncthreads();
  return part;
}

/// What of a row takes part in a draw: keys from `floor` on that are above cut_key, or are cut_key with an id from first_id on.
struct Kept {
  uint32_t floor, cut_key;
  bool has_cut;  // else ids of cut_key count as above it
  int first_id;
};

/// By the block: draws from pieces [begin, end).
__device__ inline PartDraw draw_pieces(const SampleArgs& args, int row, const SampleRow& p,
                                       const RowSpace& space, const KeyRange& range,
                                       const Kept& kept, int begin, int end) {
  PartDraw part = {no_draw(), no_draw(), 0};
  float bar_above = -FLT_MAX, bar_tied = -FLT_MAX;
  const uint32_t lowest = max(kept.floor, kept.cut_key);
#pragma unroll 1
  for (int piece = begin + warp_id(); piece < end; piece += kWarps) {
    if (range.clamp(top_key(space, piece)) < lowest) continue;
    const Eight eight = load_eight(args, row, piece);
    uint32_t above = 0, tied = 0;
#pragma unroll
    for (int i = 0; i < kLaneIds; ++i) {
      const uint32_t key = range.clamp(eight.key(i));
      if (key < lowest) continue;
      if (kept.has_cut && key == kept.cut_key) {
        if (eight.first_id + i >= kept.first_id) tied |= 1u << i;
      } else {
        above |= 1u << i;
      }
    }
    part.num_tied += static_cast<uint32_t>(__popc(tied));
    if (!__any_sync(kAllLanes, (above | tied) != 0)) continue;
    float noise[kLaneIds];
    estimate_eight(p, eight, noise);
#pragma unroll 1
    for (int k = 0; k < 2; ++k) {
      const uint32_t ids = k == 0 ? above : tied;
      if (!__any_sync(kAllLanes, ids != 0)) continue;
      Draw best = k == 0 ? part.above : part.tied;
      float bar = k == 0 ? bar_above : bar_tied;
      draw_eight(p, eight, ids, noise, bar, best);
      if (k == 0) part.above = best, bar_above = bar;
      if (k == 1) part.tied = best, bar_tied = bar;
    }
  }
  return block_join(part);
}

__device__ inline PartDraw load_part(const PartDraw* from) {
  return {load_draw(&from->above), load_draw(&from->tied), __ldcg(&from->num_tied)};
}

/// By each of `parts` blocks (at most kPartsMax): draws from the whole row. True and `best` in the last of them to come.
///
/// Only together do they know which ids of the cut's key are among its num_kept highest: the last block looks again at the one part that is kept in part.
__device__ inline bool draw_together(const SampleArgs& args, int row, const SampleRow& p,
                                     const RowSpace& space, const KeyRange& range, const Cut& cut,
                                     double floor, int part, int parts, SelectShared& s,
                                     Draw& best) {
  const int pieces = num_pieces(args.num_defined);
  const int share = (pieces + parts - 1) / parts;
  int begin = min(part * share, pieces), end = min(begin + share, pieces);
  const uint32_t lowest = lowest_key(p.temperature, floor);
  // Where min-p drops the cut's key anyway, there is nothing to tell apart.
  Kept kept = {lowest, cut.key, cut.num_kept != kKeepAll && range.clamp(cut.key) >= lowest, 0};
#pragma unroll 1
  for (int round = 0;; ++round) {
    PartDraw own = draw_pieces(args, row, p, space, range, kept, begin, end);
    if (round == 1) {
      best = better(best, own.tied);
      return true;
    }
    if (parts > 1) {
      if (threadIdx.x == 0) space.head->parts[part] = own;
      if (!is_last_block(&space.head->finish_ticket, static_cast<uint32_t>(parts))) return false;
    }
    const int mine = static_cast<int>(threadIdx.x);
    if (mine >= parts) own = {no_draw(), no_draw(), 0};
    if (mine < parts && parts > 1) own = load_part(space.head->parts + mine);
    if (mine < kPartsMax) s.key_counts[mine] = own.num_tied;
    __syncthreads();
    Place cut_at = {-1, 0};
    uint32_t dropped = 0;
    if (kept.has_cut) {
      cut_at = find_from_top(s.key_counts, parts, cut.num_kept);
      dropped = s.key_counts[cut_at.index] - cut_at.rank;
    }
    const bool is_whole = mine > cut_at.index || (mine == cut_at.index && dropped == 0);
    best = block_best(is_whole ? better(own.above, own.tied) : own.above);
    if (dropped == 0) return true;
    begin = min(cut_at.index * share, pieces);
    end = min(begin + share, pieces);
    kept.first_id = find_tie(args, row, space, range, cut.key, begin, end, dropped, s);
  }
}

}  // namespace sluice::cuda::sampling
