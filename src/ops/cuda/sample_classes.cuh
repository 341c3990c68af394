#pragma once
// Top-k and top-p by how often each key occurs (Sampler::keep_top_k, keep_top_p).

#include "ops/cuda/sample_mass.cuh"
#include "ops/cuda/sample_row.cuh"

namespace sluice::cuda::sampling {

struct SelectShared {
  Mass masses[kGroups];  // of the touched groups
  Mass key_masses[kGroupKeys];
  uint32_t counts[kGroups];  // of the touched groups
  uint32_t key_counts[kGroupKeys];
  uint16_t groups[kGroups];  // the touched ones, ascending
  uint32_t warp_counts[kWarps];
  uint32_t touched[kGroups / 32];
  int num_groups;
  uint32_t max_key, low_key;
  Cut cut;
  int32_t tie;  // find_tie's
};

/// Where a key's count lies. Neighbours lie far apart: the few hundred keys that nearly all logits have would else share a few L2 sectors, whose atomics queue.
__device__ inline uint32_t place_of(uint32_t key) {
  return key * 40503u % kNumKeys;
}

/// Adds the keys of a lane; ids missing at the vocabulary's end have key 0. Warps of one key alone add once.
__device__ inline void count_keys(const Eight& eight, const KeyRange& range, uint32_t* counts,
                                  uint32_t* touched) {
#pragma unroll
  for (int i = 0; i < kLaneIds; ++i) {
    const uint32_t key = range.clamp(eight.key(i));
    int is_one_key = 0;
    __match_all_sync(kAllLanes, key, &is_one_key);
    if (key == 0 || (is_one_key != 0 && lane_id() != 0)) continue;
    atomicAdd(&counts[place_of(key)], is_one_key != 0 ? static_cast<uint32_t>(kWarp) : 1u);
    const uint32_t group = key / kGroupKeys, bit = 1u << group % 32;
    if ((touched[group / 32] & bit) == 0) atomicOr(&touched[group / 32], bit);
  }
}

struct Place {
  int index;      // -1: none
  uint32_t rank;  // of the target within counts[index], from 1
};

/// By one warp: where the target-th from the top is, counted from 1.
__device__ inline Place find_from_top(const uint32_t* counts, int num, uint32_t target) {
  const int share = (num + kWarp - 1) / kWarp;
  const int begin = min(lane_id() * share, num), end = min(begin + share, num);
  uint32_t own = 0;
  for (int i = begin; i < end; ++i) own += counts[i];
  uint32_t from_here = own;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t above = __shfl_down_sync(kAllLanes, from_here, step);
    if (lane_id() + step < kWarp) from_here += above;
  }
  const bool is_here = from_here - own < target && target <= from_here;
  Place place = {-1, target - (from_here - own)};
  if (is_here) {
    for (place.index = end - 1; place.rank > counts[place.index]; --place.index) {
      place.rank -= counts[place.index];
    }
  }
  const uint32_t holders = __ballot_sync(kAllLanes, is_here);
  const int holder = holders == 0 ? 0 : __ffs(static_cast<int>(holders)) - 1;
  place.index = __shfl_sync(kAllLanes, place.index, holder);
  place.rank = __shfl_sync(kAllLanes, place.rank, holder);
  return place;
}

struct MassPlace {
  int index;   // -1: none
  Mass below;  // everything before it
};

/// By one warp: the first whose mass, with all before it and `below`, exceeds the limit.
__device__ inline MassPlace find_from_bottom(const Mass* masses, int num, Mass below,
                                             double limit) {
  const int share = (num + kWarp - 1) / kWarp;
  const int begin = min(lane_id() * share, num), end = min(begin + share, num);
  Mass own = 0;
  for (int i = begin; i < end; ++i) own += masses[i];
  Mass up_to_here = own;
  for (int step = 1; step < kWarp; step *= 2) {
    const Mass before =
        shuffle_mass(up_to_here, [=](uint64_t x) { return __shfl_up_sync(kAllLanes, x, step); });
    if (lane_id() >= step) up_to_here += before;
  }
  const uint32_t exceeding = __ballot_sync(kAllLanes, to_double(below + up_to_here) > limit);
  if (exceeding == 0) return {-1, 0};
  const int holder = __ffs(static_cast<int>(exceeding)) - 1;
  MassPlace place = {begin, below + (up_to_here - own)};
  if (lane_id() == holder) {
    while (!(to_double(place.below + masses[place.index]) > limit)) {
      place.below += masses[place.index++];
    }
  }
  place.index = __shfl_sync(kAllLanes, place.index, holder);
  place.below =
      shuffle_mass(place.below, [=](uint64_t x) { return __shfl_sync(kAllLanes, x, holder); });
  return place;
}

__device__ inline uint4 load_counts(const RowSpace& space, int group) {
  const auto key = static_cast<uint32_t>(group * kGroupKeys + lane_id() * 4);
  return make_uint4(__ldcg(space.counts + place_of(key)), __ldcg(space.counts + place_of(key + 1)),
                    __ldcg(space.counts + place_of(key + 2)),
                    __ldcg(space.counts + place_of(key + 3)));
}

/// By one warp: a group's counts into key_counts.
__device__ inline void spread_group(const RowSpace& space, int group, SelectShared& s) {
  __syncwarp();
  reinterpret_cast<uint4*>(s.key_counts)[lane_id()] = load_counts(space, group);
  __syncwarp();
}

/// By one warp: the key that holds the target-th logit from the top.
__device__ inline uint32_t key_from_top(const RowSpace& space, uint32_t target, SelectShared& s) {
  const Place at = find_from_top(s.counts, s.num_groups, target);
  const int group = s.groups[at.index];
  spread_group(space, group, s);
  const Place in_group = find_from_top(s.key_counts, kGroupKeys, at.rank);
  return static_cast<uint32_t>(group * kGroupKeys + in_group.index);
}

__device__ inline void list_groups(const RowSpace& space, SelectShared& s) {
  if (warp_id() == 0) {
    const bool has_word = lane_id() < kGroups / 32;
    uint32_t word = has_word ? __ldcg(&space.head->touched[lane_id()]) : 0;
    int end = __popc(word);
    for (int step = 1; step < kWarp; step *= 2) {
      const int before = __shfl_up_sync(kAllLanes, end, step);
      if (lane_id() >= step) end += before;
    }
    int at = end - __popc(word);
    for (; word != 0; word &= word - 1) {
      s.groups[at++] = static_cast<uint16_t>(lane_id() * 32 + __ffs(static_cast<int>(word)) - 1);
    }
    if (lane_id() == kWarp - 1) s.num_groups = end;
  }
  __syncthreads();
#pragma unroll 4
  for (int i = warp_id(); i < s.num_groups; i += kWarps) {
    const uint4 c = load_counts(space, s.groups[i]);
    const uint32_t sum = __reduce_add_sync(kAllLanes, c.x + c.y + c.z + c.w);
    if (lane_id() == 0) s.counts[i] = sum;
  }
  __syncthreads();
}

/// By one warp: the masses of a lane's four keys of a group, one by one to `sink(place in the group, mass)`; none below low_key.
template <typename Sink>
__device__ inline void for_masses(const SampleRow& p, uint4 counts, int group, double max,
                                  uint32_t low_key, Sink sink) {
#pragma unroll 2
  for (int i = 0; i < 4; ++i) {
    const int place = lane_id() * 4 + i;
    const auto key = static_cast<uint32_t>(group * kGroupKeys + place);
    const bool counts_in = counts.x != 0 && key >= low_key;
    sink(place, counts_in ? counts.x * key_mass(key, p.temperature, max) : Mass{0});
    counts = make_uint4(counts.y, counts.z, counts.w, 0);
  }
}

/// By one warp, with the groups' masses ready: the key that top-p cuts and how many of its ids go. Where no mass exceeds the limit, the very last id stays.
__device__ inline void cut_top_p(const SampleRow& p, const RowSpace& space, double max,
                                 SelectShared& s) {
  Mass total = 0;
  for (int i = lane_id(); i < s.num_groups; i += kWarp) total += s.masses[i];
  const double limit = (1.0 - static_cast<double>(p.top_p)) * to_double(warp_sum_mass(total));
  const MassPlace at = find_from_bottom(s.masses, s.num_groups, 0, limit);
  const int group = at.index < 0 ? static_cast<int>(s.max_key) / kGroupKeys : s.groups[at.index];
  spread_group(space, group, s);
  uint32_t key = s.max_key;
  uint32_t dropped = s.key_counts[key % kGroupKeys] - 1;
  if (at.index >= 0) {
    for_masses(p, load_counts(space, group), group, max, s.low_key,
               [&](int place, Mass mass) { s.key_masses[place] = mass; });
    __syncwarp();
    const MassPlace in_group = find_from_bottom(s.key_masses, kGroupKeys, at.below, limit);
    key = static_cast<uint32_t>(group * kGroupKeys + in_group.index);
    const Mass each = key_mass(key, p.temperature, max);
    dropped = 0;
    for (uint32_t high = s.key_counts[in_group.index] - 1; dropped < high;) {
      const uint32_t middle = (dropped + high + 1) / 2;
      const bool goes = !(to_double(in_group.below + middle * each) > limit);
      if (goes) dropped = middle;
      if (!goes) high = middle - 1;
    }
  }
  if (lane_id() == 0) {
    s.cut = {key, dropped == 0 ? kKeepAll : s.key_counts[key % kGroupKeys] - dropped};
  }
}

struct ClassCount {
  uint32_t num;
  int32_t id;  // of the target-th; -1: not reached
};

/// By one warp: the id of the target-th match (from 0) of a piece, lane by lane.
__device__ inline int32_t id_of_match(int first_id, uint32_t matches, uint32_t target) {
  const auto own = static_cast<uint32_t>(__popc(matches));
  uint32_t end = own;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint32_t before = __shfl_up_sync(kAllLanes, end, step);
    if (lane_id() >= step) end += before;
  }
  const uint32_t rank = target - (end - own);  // wraps where it is not in this lane
  const uint32_t holders = __ballot_sync(kAllLanes, rank < own);
  if (rank < own) {
    for (uint32_t i = 0; i < rank; ++i) matches &= matches - 1;
  }
  const int32_t id = first_id + __ffs(static_cast<int>(matches)) - 1;
  return __shfl_sync(kAllLanes, id, __ffs(static_cast<int>(holders)) - 1);
}

/// By one warp: how many ids of pieces [begin, end) have this key, and the id of the target-th (from 0).
__device__ inline ClassCount count_class(const SampleArgs& args, int row, const RowSpace& space,
                                         const KeyRange& range, uint32_t key, int begin, int end,
                                         uint32_t target) {
  constexpr int kAtOnce = 4;
  ClassCount count = {0, -1};
  for (int base = begin; base < end; base += kWarp) {
    const int mine = base + lane_id();
    const bool reaches = mine < end && range.clamp(top_key(space, mine)) >= key;
    const uint32_t hot = __ballot_sync(kAllLanes, reaches);
    for (int first = 0; first < kWarp; first += kAtOnce) {
      if ((hot >> first & ((1u << kAtOnce) - 1)) == 0) continue;
      uint32_t matches[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const bool is_hot = (hot >> (first + u) & 1u) != 0;
        // A piece beyond the vocabulary is empty.
        const Eight eight = load_eight(args, row, is_hot ? base + first + u : INT_MAX / kPieceIds);
        matches[u] = 0;
#pragma unroll
        for (int i = 0; i < kLaneIds; ++i) {
          if (range.clamp(eight.key(i)) == key) matches[u] |= 1u << i;
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const uint32_t here =
            __reduce_add_sync(kAllLanes, static_cast<uint32_t>(__popc(matches[u])));
        if (target - count.num < here) {  // wraps once it is behind
          const int first_id = (base + first + u) * kPieceIds + lane_id() * kLaneIds;
          count.id = id_of_match(first_id, matches[u], target - count.num);
        }
        count.num += here;
      }
    }
  }
  return count;
}

/// By the block: the id of the rank-th (from 0) of a key in pieces [first, last), which has that many.
__device__ inline int32_t find_tie(const SampleArgs& args, int row, const RowSpace& space,
                                   const KeyRange& range, uint32_t key, int first, int last,
                                   uint32_t rank, SelectShared& s) {
  const int share = (last - first + kWarps - 1) / kWarps;
  const int begin = min(first + warp_id() * share, last), end = min(begin + share, last);
  uint32_t target = UINT_MAX;
#pragma unroll 1
  for (int round = 0; round < 2; ++round) {
    const ClassCount count = count_class(args, row, space, range, key, begin, end, target);
    if (count.id >= 0 && lane_id() == 0) s.tie = count.id;
    if (round == 0 && lane_id() == 0) s.warp_counts[warp_id()] = count.num;
    __syncthreads();
    target = rank;  // wraps behind the warp that holds it
    for (int w = 0; w < warp_id(); ++w) target -= s.warp_counts[w];
  }
  return s.tie;
}

/// By one block, with the row's counts complete: sets s.cut and leaves the counts zero.
__device__ inline void select_classes(const SampleArgs& args, const SampleRow& p,
                                      const RowSpace& space, SelectShared& s) {
  list_groups(space, s);
  if (warp_id() == 0) {
    const uint32_t max_key = key_from_top(space, 1, s);
    const uint32_t low_key =
        has_top_k(p, args.num_defined) ? key_from_top(space, static_cast<uint32_t>(p.top_k), s) : 0;
    if (lane_id() == 0) {
      s.max_key = max_key;
      s.low_key = low_key;
      s.cut = {low_key, kKeepAll};
    }
  }
  __syncthreads();
  if (p.top_p < 1.0f) {
    const double max = value_of(s.max_key) / p.temperature;
    for (int i = warp_id(); i < s.num_groups; i += kWarps) {
      Mass sum = 0;
      for_masses(p, load_counts(space, s.groups[i]), s.groups[i], max, s.low_key,
                 [&](int, Mass mass) { sum += mass; });
      sum = warp_sum_mass(sum);
      if (lane_id() == 0) s.masses[i] = sum;
    }
    __syncthreads();
    if (warp_id() == 0) cut_top_p(p, space, max, s);
    __syncthreads();
  }
  for (int i = warp_id(); i < s.num_groups; i += kWarps) {
    for (int j = lane_id(); j < kGroupKeys; j += kWarp) {
      space.counts[place_of(static_cast<uint32_t>(s.groups[i] * kGroupKeys + j))] = 0;
    }
  }
  if (threadIdx.x < kGroups / 32) space.head->touched[threadIdx.x] = 0;
  __syncthreads();
}

}  // namespace sluice::cuda::sampling
