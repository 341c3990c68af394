#pragma once
// How a step's prefill attention is cut into work.
//
// Rows of the first product are "flat" rows: position * group + query head of the KV head, so that a tile of 128 has all query heads of 21 to 32 positions. A unit of
// work is kClusterTiles tiles (a cluster, a block each) of one run and KV head, over some spans of the context.
//
// Spans are cut at absolute positions and grow with them: four of 1,024, then four an octave. Inside a span keys come in tiles of 64 in order; spans are
// joined in order, as (m, l, o) <- (M, l exp(m - M) + l' exp(m' - M), o exp(m - M) + o' exp(m' - M)). One block may do that on its way through the context, or many
// blocks may have a span each: the bits are the same.

#include <cstdint>

#include "ops/cuda/packed.h"
#include "ops/step_view.h"

namespace sluice::cuda::prefill {

constexpr int kHeadDim = 256;
constexpr int kKeys = 64;       // a tile of the context
constexpr int kTileRows = 128;  // flat rows a block
constexpr int kClusterTiles = 2;
constexpr int kUnitRows = kTileRows * kClusterTiles;
constexpr int kTileImage =
    kTileRows * kHeadDim * 2;  // bytes of a tile of queries, as it lies in shared memory

constexpr int kMinSpan = 1024;
constexpr int kSpansPerOctave = 4;
static_assert(kMinSpan % kKeys == 0);

SLUICE_HOST_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

/// First position of span i.
SLUICE_HOST_DEVICE constexpr int span_begin(int i) {
  if (i < kSpansPerOctave) return i * kMinSpan;
  const int octave = i / kSpansPerOctave - 1;
  return (kSpansPerOctave + i % kSpansPerOctave) * kMinSpan << octave;
}
/// Spans that the first num_keys positions touch.
SLUICE_HOST_DEVICE constexpr int spans_of(int num_keys) {
  int spans = 1;
  while (span_begin(spans) < num_keys) ++spans;
  return spans;
}
static_assert(span_begin(4) == 4096 && span_begin(7) == 7168 && span_begin(8) == 8192);
static_assert(spans_of(262144) == 28);

/// Constants of a launch.
struct Plan {
  int num_kv_heads, group;
  int num_clusters;
  int images_per_head;  // tiles of queries the scratch has for a KV head
  int split_spans;  // spans of the longest context if every unit has one span; 0: contexts are not split
  bool tiles_from_first_row;
};

/// Query tiles of a run, for one KV head.
struct Tiles {
  int first_flat;  // flat row of the first tile
  int num_units;
  int image;  // of the first tile; runs keep apart, whatever they are
};

SLUICE_HOST_DEVICE inline Tiles tiles_of(const Plan& plan, const DeviceRun& run, int run_idx) {
  const int begin = run.position * plan.group;
  const int end = (run.position + run.num_rows) * plan.group;
  Tiles tiles;
  tiles.first_flat = plan.tiles_from_first_row ? begin : begin / kUnitRows * kUnitRows;
  tiles.num_units = ceil_div(end - tiles.first_flat, kUnitRows);
  tiles.image = kClusterTiles * (run.first_row * plan.group / kUnitRows + 2 * run_idx);
  return tiles;
}
/// Images that no plan of so many rows exceeds.
SLUICE_HOST_DEVICE inline int images_of(int num_rows, int num_runs, int group) {
  return kClusterTiles * (num_rows * group / kUnitRows + 2 * num_runs);
}

struct Unit {
  DeviceRun run;
  int kv_head;
  int first_flat;  // of the cluster's first tile
  int image;       // of it, counted over all heads
  int span, end_span;
  int num_keys;  // positions below this are seen by some row; spans stop at it
};

/// Keys times heads beyond which KV heads are worked off one after the other, so that what runs at the same time shares keys in L2. Below, all heads together: better
/// balanced, and blocks stream the context side by side anyway.
constexpr int kKeysTogether = 4 * 65536;

/// Unit `idx` of the step, longest first within a run. False behind the last.
SLUICE_HOST_DEVICE inline bool unit_at(const Plan& plan, const StepView& step, int idx,
                                       Unit* unit) {
  for (int r = 0; r < step.num_runs; ++r) {
    const DeviceRun run = step.runs[r];
    if (run.num_rows == 0) continue;
    const Tiles tiles = tiles_of(plan, run, r);
    const int end = run.position + run.num_rows;
    const int spans = plan.split_spans == 0 ? 1 : spans_of(end);
    const int count = tiles.num_units * plan.num_kv_heads * spans;
    if (idx >= count) {
      idx -= count;
      continue;
    }
    int turn = 0;
    if (plan.split_spans != 0) {
      turn = idx / (tiles.num_units * plan.num_kv_heads);
      idx %= tiles.num_units * plan.num_kv_heads;
    }
    const bool together = end * plan.num_kv_heads <= kKeysTogether || plan.split_spans != 0;
    unit->kv_head = together ? idx % plan.num_kv_heads : idx / tiles.num_units;
    const int place = together ? idx / plan.num_kv_heads : idx % tiles.num_units;
    const int tile = tiles.num_units - 1 - place;
    unit->run = run;
    unit->first_flat = tiles.first_flat + tile * kUnitRows;
    unit->image = unit->kv_head * plan.images_per_head + tiles.image + tile * kClusterTiles;
    const int last = (unit->first_flat + kUnitRows - 1) / plan.group;
    unit->num_keys = (last < end - 1 ? last : end - 1) + 1;
    unit->span = 0;
    unit->end_span = spans_of(unit->num_keys);
    if (plan.split_spans != 0) {
      // The last span is short; the ones before it are longest first.
      unit->span = turn == spans - 1 ? spans - 1 : spans - 2 - turn;
      const int behind = unit->span + 1;
      unit->end_span = behind < unit->end_span ? behind : unit->end_span;  // maybe none
    }
    return true;
  }
  return false;
}

/// Which unit cluster c has in round i: forth and back over the list, so that sums of lengths come out even.
SLUICE_HOST_DEVICE inline int unit_of_round(const Plan& plan, int round, int cluster) {
  return round * plan.num_clusters + (round % 2 == 0 ? cluster : plan.num_clusters - 1 - cluster);
}

/// Partial results: of a span of a tile. Place of (image counted over all heads, span).
SLUICE_HOST_DEVICE inline int64_t part_of(const Plan& plan, int image, int span) {
  return static_cast<int64_t>(image) * plan.split_spans + span;
}
/// fp32 sums of a tile: four a thread, thread after thread, for each 8 dims.
constexpr int kPartFloats = kTileRows * kHeadDim;

/// Byte of query row `row` (of a tile), dims 8 chunk .. 8 chunk + 7, in an image: four panels of 64 dims, 128-byte swizzle.
SLUICE_HOST_DEVICE constexpr int image_place(int row, int chunk) {
  return chunk / 8 * (kTileRows * 128) + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
}

/// What the busiest cluster has to do, in keys (64 keys of a unit take about 1.3 us: derived, not measured), were the step this one run.
inline int64_t longest_work(const Plan& plan, const DeviceRun& run) {
  constexpr int64_t kSpanKeys = 64;    // filling and draining the pipeline, parking sums
  constexpr int64_t kMergeKeys = 160;  // another kernel
  constexpr int64_t kPartKeys = 3;     // a part on its way to memory and back
  StepView step;
  step.runs = &run;
  step.num_runs = 1;
  int64_t longest = 0;
  int64_t parts = 0;
  for (int cluster = 0; cluster < plan.num_clusters; ++cluster) {
    int64_t work = 0;
    Unit unit;
    for (int i = 0; unit_at(plan, step, unit_of_round(plan, i, cluster), &unit); ++i) {
      if (unit.span >= unit.end_span) continue;
      const int end = span_begin(unit.end_span);
      work += (end < unit.num_keys ? end : unit.num_keys) - span_begin(unit.span);
      work += (unit.end_span - unit.span) * kSpanKeys;
      ++parts;
    }
    longest = longest < work ? work : longest;
  }
  return plan.split_spans == 0 ? longest : longest + kMergeKeys + parts * kPartKeys;
}

/// Where the chunk of 8 operands begins that lane 4 i + a of a head fills; the same chunk that a fragment's lane 4 r + a holds of n8 blocks 4 i .. 4 i + 3.
SLUICE_HOST_DEVICE constexpr int chunk_place(int quarter, int t) {
  return quarter / 2 * kPackBlock + quarter % 2 * 32 + t * 8;
}
SLUICE_HOST_DEVICE constexpr int gate_place(int lane) {
  return chunk_place(lane / 4, lane % 4);
}

}  // namespace sluice::cuda::prefill
