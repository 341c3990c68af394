#pragma once
// The few likeliest ids of a row, for small top-k and for the candidates a request asks to see.

#include "ops/cuda/sample_draw.cuh"
#include "ops/cuda/sample_mass.cuh"

namespace sluice::cuda::sampling {

constexpr int kListMax = kThreads;

/// The row's likeliest ids in no order: every id that reaches a bound below the k-th best.
struct ListShared {
  Mass masses[kListMax];
  uint64_t entries[kListMax];  // key << 32 | id, so that the host's ascending order is theirs
  int32_t hot[kListMax];       // pieces that reach the bound
  Mass total;
  int num_hot, num;
  uint32_t kth;
};

__device__ inline uint32_t key_of_entry(uint64_t entry) {
  return static_cast<uint32_t>(entry >> 32);
}
__device__ inline int32_t id_of_entry(uint64_t entry) {
  return static_cast<int32_t>(entry);
}

/// By the block: a key that at least k of the threads' `highest` reach, below the k-th highest by less than kKeyStep where they are not far apart.
__device__ inline uint32_t bound_of(uint32_t highest, uint32_t top_key, int k) {
  constexpr uint32_t kWindow = 4096, kKeyStep = 4;
  uint32_t bound = top_key > kWindow ? top_key - kWindow : 0;
  if (__syncthreads_count(highest >= bound) < k) return 0;
#pragma unroll 1
  for (uint32_t step = kWindow / 2; step >= kKeyStep; step /= 2) {
    if (__syncthreads_count(highest >= bound + step) >= k) bound += step;
  }
  return bound;
}

/// Bit i: id i of a lane reaches the bound, a key of at least 1. No NaN is among them.
__device__ inline uint32_t reaching(const Eight& eight, uint32_t bound) {
  const uint32_t pairs[kLaneIds / 2] = {eight.raw.x, eight.raw.y, eight.raw.z, eight.raw.w};
  const int value = ordered_of_key(bound) * 65536;
  uint32_t found = 0;
#pragma unroll
  for (int i = 0; i < kLaneIds / 2; ++i) {
    const uint32_t ordered = ordered_pair(pairs[i]);
    if (static_cast<int>(ordered << 16) >= value) found |= 1u << (2 * i);
    if (static_cast<int>(ordered) >= value) found |= 2u << (2 * i);
  }
  return found & ((1u << eight.num_ids) - 1);
}

/// By the block: lists at least the k likeliest ids and all their ties. False: more than kListMax.
/// `highest`: the best key of the thread's pieces, those of its index modulo kThreads.
///
/// The loops here and below are rolled: they run a few times, on one block, and are fetched for each use.
__device__ inline bool list_likeliest(const SampleArgs& args, int row, const RowSpace& space,
                                      const KeyRange& range, uint32_t highest, uint32_t row_highest,
                                      int k, ListShared& list) {
  if (threadIdx.x == 0) list.num_hot = list.num = 0;
  uint32_t bound = bound_of(highest, row_highest, k);
  if (bound >= range.high) bound = range.high;
  if (bound <= range.low) bound = 1;
  if (highest >= bound) {
    const int pieces = num_pieces(args.num_defined);
#pragma unroll 4
    for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
      if (top_key(space, piece) < bound) continue;
      const int at = atomicAdd(&list.num_hot, 1);
      if (at < kListMax) list.hot[at] = piece;
    }
  }
  __syncthreads();
  const int num_hot = list.num_hot;
  if (num_hot > kListMax) return false;
  Eight next = {};
  if (warp_id() < num_hot) next = load_eight(args, row, list.hot[warp_id()]);
#pragma unroll 1
  for (int h = warp_id(); h < num_hot; h += kWarps) {
    const Eight eight = next;
    if (h + kWarps < num_hot) next = load_eight(args, row, list.hot[h + kWarps]);
#pragma unroll 1
    for (uint32_t found = reaching(eight, bound); found != 0; found &= found - 1) {
      const int i = __ffs(static_cast<int>(found)) - 1;
      const int at = atomicAdd(&list.num, 1);
      if (at >= kListMax) break;
      const auto id = static_cast<uint32_t>(eight.first_id + i);
      list.entries[at] = static_cast<uint64_t>(eight.key(i)) << 32 | id;
    }
  }
  __syncthreads();
  return list.num <= kListMax;
}

/// By the block: draws from the list by top-k, top-p and min-p. Leaves keys within the range.
__device__ inline Draw draw_from_list(const SampleRow& p, const KeyRange& range, uint32_t max_key,
                                      double floor, ListShared& list) {
  const int mine = static_cast<int>(threadIdx.x);
  const int num = list.num;
  const bool is_listed = mine < num;
  Draw own = no_draw();
  uint64_t entry = 0;
  bool is_kept = false;
  if (is_listed) {
    const uint32_t key = range.clamp(key_of_entry(list.entries[mine]));
    own.id = id_of_entry(list.entries[mine]);
    entry = static_cast<uint64_t>(key) << 32 | static_cast<uint32_t>(own.id);
    list.entries[mine] = entry;
    const float scaled = value_of(key) / p.temperature;
    own.score = static_cast<double>(scaled) + gumbel_noise(p, own.id);
    is_kept = !(scaled < floor);
    if (p.top_p < 1.0f) {
      const double max = value_of(range.clamp(max_key)) / p.temperature;
      list.masses[mine] = key_mass(key, p.temperature, max);
    }
  }
  __syncthreads();
  int num_above = 0;
  if (is_listed) {
#pragma unroll 4
    for (int i = 0; i < num; ++i) num_above += list.entries[i] > entry;
    if (num_above == p.top_k - 1) list.kth = key_of_entry(entry);
  }
  __syncthreads();
  const bool is_in_k = is_listed && key_of_entry(entry) >= list.kth;
  if (p.top_p < 1.0f) {
    if (is_listed && !is_in_k) list.masses[mine] = 0;
    __syncthreads();
    Mass up_to_mine = 0;
    if (is_in_k) {
#pragma unroll 2
      for (int i = 0; i < num; ++i) {
        if (list.entries[i] <= entry) up_to_mine += list.masses[i];
      }
      if (num_above == 0) list.total = up_to_mine;
    }
    __syncthreads();
    const double limit = (1.0 - static_cast<double>(p.top_p)) * to_double(list.total);
    is_kept &= num_above == 0 || to_double(up_to_mine) > limit;
  }
  return block_best(is_kept && is_in_k ? own : no_draw());
}

/// By the block: the id that follows `last` by falling logit, then rising id.
__device__ inline Top next_likeliest(const SampleArgs& args, int row, const RowSpace& space,
                                     Top last) {
  __shared__ Top per_warp[kWarps];
  const int pieces = num_pieces(args.num_defined);
  const int share = (pieces + kWarps - 1) / kWarps;
  const int begin = min(warp_id() * share, pieces), end = min(begin + share, pieces);
  Top best = {0, UINT_MAX, 0};
  for (int base = begin; base < end; base += kWarp) {
    const int mine = base + lane_id();
    const uint32_t reach = mine < end ? min(top_key(space, mine), last.key) : 0;
    uint32_t hot = __ballot_sync(kAllLanes, reach > best.key);
    for (; hot != 0; hot &= hot - 1) {
      const int from = __ffs(static_cast<int>(hot)) - 1;
      // Ids rise along the warp's pieces, so a tie is no gain.
      if (__shfl_sync(kAllLanes, reach, from) <= best.key) continue;
      const Eight eight = load_eight(args, row, base + from);
      Top own = {0, UINT_MAX, 0};
#pragma unroll
      for (int i = 0; i < kLaneIds; ++i) {
        const uint32_t key = eight.key(i);
        const auto id = static_cast<uint32_t>(eight.first_id + i);
        const bool follows = key < last.key || (key == last.key && id > last.id);
        if (follows && key > own.key) own = {key, id, 0};
      }
      own = warp_top(own);
      if (own.key > best.key) best = own;
    }
  }
  if (lane_id() == 0) per_warp[warp_id()] = best;
  __syncthreads();
  best = warp_top(lane_id() < kWarps ? per_warp[lane_id()] : Top{0, UINT_MAX, 0});
  __syncthreads();
  return best;
}

__device__ inline DrawnLogits::Top entry_of(uint32_t key, uint32_t id) {
  if (key == 0) return {kNoToken, -INFINITY};
  return {static_cast<int32_t>(id), value_of(key)};
}

/// By the block.
__device__ inline void write_tops(const SampleArgs& args, int row, const RowSpace& space,
                                  int num_top, bool is_rehearsal, bool is_list_whole,
                                  const ListShared& list) {
  DrawnLogits::Top* out = args.drawn_logits[row].tops;
  const int mine = static_cast<int>(threadIdx.x);
  if (is_rehearsal) num_top = 0;
  if (!is_list_whole) {
    Top last = {UINT_MAX, 0, 0};
    for (int n = 0; n < num_top; ++n) {
      if (last.key != 0) last = next_likeliest(args, row, space, last);
      if (mine == 0) out[n] = entry_of(last.key, last.id);
    }
    return;
  }
  if (mine < num_top && mine >= list.num) out[mine] = entry_of(0, 0);
  if (mine < list.num) {
    // By falling key, then rising id.
    const uint64_t own = list.entries[mine] ^ UINT_MAX;
    int rank = 0;
#pragma unroll 4
    for (int i = 0; i < list.num; ++i) rank += (list.entries[i] ^ UINT_MAX) > own;
    if (rank < num_top) {
      out[rank] = entry_of(key_of_entry(list.entries[mine]),
                           static_cast<uint32_t>(id_of_entry(list.entries[mine])));
    }
  }
  __syncthreads();
}

}  // namespace sluice::cuda::sampling
