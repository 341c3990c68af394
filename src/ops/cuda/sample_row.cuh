#pragma once
// How the sampler sees a row: 16-bit keys, pieces of 256 ids, what it is asked for and where its intermediate values lie.

#include <cfloat>
#include <climits>

#include "ops/cuda/math.cuh"
#include "ops/cuda/sample.h"

namespace sluice::cuda::sampling {

constexpr uint32_t kAllLanes = 0xffffffffu;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kLaneIds = 8;  // 16 bytes
constexpr int kPieceIds = kWarp * kLaneIds;

// Keys: 0x8000 + magnitude for a positive logit, 0x8000 - magnitude for a negative one. 0: no id there.
constexpr uint32_t kKeyZero = 0x8000;
constexpr uint32_t kKeyInf = 0xff80;
constexpr uint32_t kKeyNan = 0xffff;
constexpr int kNumKeys = 65536;
constexpr int kGroupKeys = 128;  // one exponent; four keys a lane
constexpr int kGroups = kNumKeys / kGroupKeys;

constexpr int kTopKSmall = 64;
constexpr int kPartsMax = 128;

__device__ inline uint32_t key_of(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  if (magnitude > 0x7f80u) return kKeyNan;
  return (bits & 0x8000u) != 0 ? kKeyZero - magnitude : kKeyZero + magnitude;
}

__device__ inline float value_of(uint32_t key) {
  const uint32_t bits = key >= kKeyZero ? key - kKeyZero : 0x8000u | (kKeyZero - key);
  return __uint_as_float(bits << 16);
}

/// Two bf16 as two signed 16-bit numbers in the same order: -0 is -1, +0 is 0, a negative NaN lies below -infinity.
__device__ inline uint32_t ordered_pair(uint32_t pair) {
  uint32_t negative;  // 0xffff where it is
  asm("prmt.b32 %0, %1, %1, 0xbb99;" : "=r"(negative) : "r"(pair));
  return pair ^ (negative & 0x7fff7fffu);
}
__device__ inline int low_half(uint32_t pair) {
  return static_cast<int16_t>(pair);
}
__device__ inline int high_half(uint32_t pair) {
  return static_cast<int32_t>(pair) >> 16;
}
__device__ inline uint32_t key_of_ordered(int value) {
  return static_cast<uint32_t>(static_cast<int>(kKeyZero) + value + (value < 0 ? 1 : 0));
}

__device__ inline int ordered_of_key(uint32_t key) {
  return static_cast<int>(key) - static_cast<int>(kKeyZero) - (key <= kKeyZero ? 1 : 0);
}

/// Keys whose logit overflows when divided by a temperature below 1 are ties on the host, so they become one key.
struct KeyRange {
  uint32_t low, high;
  __device__ uint32_t clamp(uint32_t key) const { return key == 0 ? 0 : min(max(key, low), high); }
};

__device__ inline KeyRange key_range(float temperature) {
  uint32_t magnitude = 0x7f80u;
  if (temperature < 1.0f) {
    magnitude = __float_as_uint(temperature * FLT_MAX) >> 16;
    while (!isinf(widen(bf16{static_cast<uint16_t>(magnitude)}) / temperature)) ++magnitude;
    while (isinf(widen(bf16{static_cast<uint16_t>(magnitude - 1)}) / temperature)) --magnitude;
  }
  return {kKeyZero - magnitude, kKeyZero + magnitude};
}

/// A lane's ids of one piece: up to 8 logits in a row.
struct Eight {
  uint4 raw;
  int first_id;
  int num_ids;

  __device__ uint32_t bits(int i) const {
    const uint32_t pair = i < 4 ? (i < 2 ? raw.x : raw.y) : (i < 6 ? raw.z : raw.w);
    return (i & 1) != 0 ? pair >> 16 : pair & 0xffffu;
  }
  __device__ uint32_t key(int i) const { return i < num_ids ? key_of(bits(i)) : 0; }
  __device__ float logit(int i) const { return __uint_as_float(bits(i) << 16); }
};

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x) % kWarp;
}
__device__ inline int warp_id() {
  return static_cast<int>(threadIdx.x) / kWarp;
}

__device__ inline Eight load_eight(const SampleArgs& args, int row, int piece) {
  Eight eight;
  eight.raw = make_uint4(0, 0, 0, 0);
  eight.first_id = piece * kPieceIds + lane_id() * kLaneIds;
  eight.num_ids = min(max(args.num_defined - eight.first_id, 0), kLaneIds);
  if (eight.num_ids > 0) {
    const bf16* from = args.logits + row * args.stride + eight.first_id;
    eight.raw = __ldcg(reinterpret_cast<const uint4*>(from));
  }
  return eight;
}

// ---- what a row is asked for, and where it keeps its intermediate values ----

enum class Mode { kGreedy, kPlain, kTopK, kClasses, kMinP };

__device__ inline bool has_top_k(const SampleRow& p, int num_defined) {
  return p.top_k > 0 && p.top_k < num_defined;
}

__device__ inline Mode mode_of(const SampleRow& p, int num_defined) {
  if (p.temperature == 0.0f) return Mode::kGreedy;
  if (has_top_k(p, num_defined)) return p.top_k <= kTopKSmall ? Mode::kTopK : Mode::kClasses;
  if (p.top_p < 1.0f) return Mode::kClasses;
  return p.log_min_p > -INFINITY ? Mode::kMinP : Mode::kPlain;
}

/// The best id so far; by score, then the lower id.
struct Draw {
  double score;
  int32_t id;
};
__device__ inline Draw no_draw() {
  return {-INFINITY, INT_MAX};
}
__device__ inline Draw better(Draw a, Draw b) {
  return b.score > a.score || (b.score == a.score && b.id < a.id) ? b : a;
}

/// What top-k and top-p keep: keys above `key`, and of `key` itself the num_kept highest ids.
struct Cut {
  uint32_t key;
  uint32_t num_kept;
};
constexpr uint32_t kKeepAll = UINT_MAX;

/// What one block of several found in its share of a row.
struct PartDraw {
  Draw above;  // of keys above the cut's
  Draw tied;   // of the cut's key
  uint32_t num_tied;
};

/// Zero between launches but for `cut` and `parts`.
struct RowHead {
  uint32_t touched[kGroups / 32];  // groups with a count
  uint32_t scan_ticket, finish_ticket;
  Cut cut;
  PartDraw parts[kPartsMax];
};
constexpr size_t kAlign = 256;
constexpr size_t aligned(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}
constexpr size_t kHeadBytes = aligned(sizeof(RowHead));
constexpr size_t kCountBytes = kNumKeys * sizeof(uint32_t);

constexpr __host__ __device__ int num_pieces(int num_defined) {
  return (num_defined + kPieceIds - 1) / kPieceIds;
}

struct RowSpace {
  RowHead* head;
  uint32_t* counts;  // [kNumKeys], zero between launches
  uint2* tops;       // [pieces]: key << 16 | (255 - place) of the best; second-best key
  double* sums;      // [pieces]: exp(logit - the piece's best)
  Draw* draws;       // [pieces]
};
constexpr size_t kPieceBytes = sizeof(uint2) + sizeof(double) + sizeof(Draw);

constexpr __host__ __device__ size_t row_bytes(int pieces) {
  return kHeadBytes + kCountBytes +
         (static_cast<size_t>(pieces) * kPieceBytes + kAlign - 1) / kAlign * kAlign;
}

__device__ inline RowSpace row_space(const SampleArgs& args, int row) {
  const int pieces = num_pieces(args.num_defined);
  char* at = static_cast<char*>(args.workspace) + static_cast<size_t>(row) * row_bytes(pieces);
  RowSpace space;
  space.head = reinterpret_cast<RowHead*>(at);
  space.counts = reinterpret_cast<uint32_t*>(at + kHeadBytes);
  space.draws = reinterpret_cast<Draw*>(at + kHeadBytes + kCountBytes);
  space.sums = reinterpret_cast<double*>(space.draws + pieces);
  space.tops = reinterpret_cast<uint2*>(space.sums + pieces);
  return space;
}

__device__ inline uint32_t top_key(const RowSpace& space, int piece) {
  return __ldcg(&space.tops[piece]).x >> 16;
}

__device__ inline Draw load_draw(const Draw* from) {
  return {__ldcg(&from->score), __ldcg(&from->id)};
}

/// True in every thread of the last of `num_blocks` to come; what the others wrote before is then visible.
__device__ inline bool is_last_block(uint32_t* ticket, uint32_t num_blocks) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(ticket, 1u) == num_blocks - 1;
    if (is_last) *ticket = 0;
    __threadfence();
  }
  __syncthreads();
  return is_last;
}

/// A row's best: key, lowest id, second-best key (the same one for a tie). Key 0: none.
struct Top {
  uint32_t key, id, second;
};

__device__ inline Top warp_top(Top top) {
  const uint32_t key = __reduce_max_sync(kAllLanes, top.key);
  const uint32_t id = __reduce_min_sync(kAllLanes, top.key == key ? top.id : UINT_MAX);
  const bool is_mine = top.key == key && top.id == id;
  return {key, id, __reduce_max_sync(kAllLanes, is_mine ? top.second : top.key)};
}

}  // namespace sluice::cuda::sampling
