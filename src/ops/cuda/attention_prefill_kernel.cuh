#pragma once
// The second kernel: two warpgroups of 64 flat rows each take turns at the tensor cores, a warp of a third one brings keys and values.
//
// A block has 128 rows of queries in shared memory and a ring of five tiles of 64 keys or values, in the order in which they are used: K(0), K(1), V(0), K(2), V(1) ...
// Blocks of a cluster walk over the same keys, so each brings half of every tile to both. Weights stay in registers. A warpgroup asks for the scores of tile j and
// the outputs of tile j - 1 at once, and has the softmax of tile j behind it when the outputs are done; meanwhile the other warpgroup's products run.

#include "ops/cuda/attention_prefill_finish.cuh"
#include "ops/cuda/attention_prefill_softmax.cuh"

namespace sluice::cuda::prefill {

constexpr int kThreads = 384;  // consumers, then the producer's warpgroup
constexpr int kSlots = 5;
constexpr int kSlotBytes = kKeys * kHeadDim * 2;
constexpr int kPanelBytes = kKeys * 128;  // 64 dims of a slot
constexpr int kQueryPanelBytes = kTileRows * 128;
constexpr int kPanels = kHeadDim / 64;
constexpr int kHeldSteps = 6;  // of 16: what registers are left for
static_assert(kHeldSteps >= 1 && kHeldSteps <= 16);

struct Shared {
  alignas(1024) uint8_t queries[kTileImage];
  alignas(1024) uint8_t ring[kSlots][kSlotBytes];
  uint64_t full[kSlots], empty[kSlots], queries_full, queries_empty;
  Unit unit[2];  // with the queries; a consumer is never more than one behind
};
static_assert(sizeof(Shared) <= 227 * 1024);

using Cursor = RingCursor<kSlots>;

/// Tiles of 64 keys of a span that the unit sees.
struct KeyTiles {
  int begin, end;
};
__device__ __forceinline__ KeyTiles key_tiles(const Unit& unit, int span) {
  return {span_begin(span) / kKeys, ceil_div(min(span_begin(span + 1), unit.num_keys), kKeys)};
}

/// Two warpgroups take turns: named barriers 1 and 2 of 256 threads.
struct Turn {
  int own;
  __device__ __forceinline__ void take() const {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + own) : "memory");
  }
  __device__ __forceinline__ void give() const {
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - own) : "memory");
  }
};

__device__ __forceinline__ void produce(const Params& params, const StepView& step, Shared* shared,
                                        int cluster, uint32_t rank) {
  const AttentionPrefill& op = params.op;
  const uint32_t full = shared_address(shared->full);
  const uint32_t empty = shared_address(shared->empty);
  const uint32_t queries_full = shared_address(&shared->queries_full);
  const uint32_t queries_empty = shared_address(&shared->queries_empty);
  asm volatile("fence.proxy.async.global;" ::
                   : "memory");  // what the first kernel stored, the copy engine reads
  const auto page_rows = static_cast<int>(op.kv.page_stride / kHeadDim);
  constexpr auto kPage = static_cast<int>(kKvPageTokens);
  constexpr int kShare = kPanels / kClusterTiles;
  constexpr uint16_t kAll = (1 << kClusterTiles) - 1;
  Cursor at;
  uint32_t parity = 1;  // of the queries; the unit's place in turn
#pragma unroll 1
  for (int round = 0;; ++round) {
    Unit unit;
    const bool any = unit_at(params.plan, step, unit_of_round(params.plan, round, cluster), &unit);
    if (!any) unit.num_keys = 0;
    if (any && unit.span >= unit.end_span) continue;
    barrier_wait(queries_empty, parity);
    parity ^= 1;
    shared->unit[parity] = unit;
    if (!any) {
      barrier_arrive(queries_full);
      return;
    }
    barrier_expect(queries_full, kTileImage);
    load_bulk(shared_address(shared->queries),
              params.queries + (unit.image + static_cast<int64_t>(rank)) * kTileImage, kTileImage,
              queries_full);
    const auto load = [&](int tile, int first_row) {
      barrier_wait(empty + 8 * at.slot, at.parity ^ 1);
      barrier_expect(full + 8 * at.slot, kSlotBytes);
      const int key = tile * kKeys;
      const int row =
          step.pages[unit.run.first_page + key / kPage] * page_rows + first_row + key % kPage;
      load_tile_3d_multicast(shared_address(shared->ring[at.slot]) + rank * (kShare * kPanelBytes),
                             &params.keys, 0, row, static_cast<int>(rank) * kShare,
                             full + 8 * at.slot, kAll);
      at.advance();
    };
    const int keys_row = unit.kv_head * kPage;
    const int values_row = (op.num_kv_heads + unit.kv_head) * kPage;
#pragma unroll 1
    for (int span = unit.span; span < unit.end_span; ++span) {
      const KeyTiles tiles = key_tiles(unit, span);
#pragma unroll 1
      for (int j = tiles.begin; j <= tiles.end; ++j) {
        if (j < tiles.end) load(j, keys_row);
        if (j > tiles.begin) load(j - 1, values_row);
      }
    }
  }
}

/// Queries of a warpgroup: the first kHeldSteps k16 steps in registers, which spares shared memory their reads, the rest through a descriptor's low word.
struct Queries {
  uint32_t descriptor;
  uint32_t held[4 * kHeldSteps];

  /// `rows`: the warpgroup's 64 in shared memory.
  __device__ __forceinline__ void load(uint32_t rows) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (uint32_t step = 0; step < kHeldSteps; ++step) {
      uint32_t* a = held + 4 * step;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                   : "r"(rows + step / 4 * kQueryPanelBytes + row * 128 +
                         ((2 * (step % 4) + lane / 16) ^ row % 8) * 16)
                   : "memory");
    }
  }
};

/// s = q k of 64 rows and 64 keys; k: a descriptor's low word.
__device__ __forceinline__ void ask_scores(float (&s)[32], const Queries& q, uint32_t k) {
#pragma unroll
  for (int step = 0; step < kHeadDim / 16; ++step) {
    const uint64_t a =
        tile_descriptor(q.descriptor + step / 4 * (kQueryPanelBytes >> 4) + step % 4 * kTileStep);
    const uint64_t b = tile_descriptor(k + step / 4 * (kPanelBytes >> 4) + step % 4 * kTileStep);
    if (step < kHeldSteps) {
      if (step == 0) {
        wgmma_scores_begin(s, q.held, b);
      } else {
        wgmma_scores_add(s, q.held + 4 * step, b);
      }
    } else if (step == 0) {
      wgmma_scores_begin(s, a, b);
    } else {
      wgmma_scores_add(s, a, b);
    }
  }
}
/// o = p v + (adds ? o : 0).
__device__ __forceinline__ void ask_outputs(float (&o)[128], const uint32_t (&p)[16], uint32_t v,
                                            bool adds) {
#pragma unroll
  for (int step = 0; step < kKeys / 16; ++step) {
    wgmma_outputs(o, p + 4 * step, tile_descriptor(v + step * (16 * 128 >> 4)),
                  step > 0 || adds ? 1 : 0);
  }
}

/// A consumer warp's view of the ring.
struct Ring {
  uint32_t full, empty;
  uint32_t keys, values;  // descriptors of slot 0 as keys and as values
  Cursor at;

  __device__ __forceinline__ void wait(const Cursor& c) const {
    barrier_wait(full + 8 * c.slot, c.parity);
  }
  /// Each warp by itself, to the producers of all blocks that fill the slot.
  __device__ __forceinline__ void release(const Cursor& c) const {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < kClusterTiles) barrier_arrive_at(empty + 8 * c.slot, lane);
  }
  __device__ __forceinline__ uint32_t place(const Cursor& c) const {
    return static_cast<uint32_t>(c.slot) * (kSlotBytes >> 4);
  }
};

/// One span: o, and the rows' states, from nothing.
/// zero: 0, unknown to the compiler. Weights that the next product takes must not be the very registers that were written while this one ran (note C7513).
__device__ __forceinline__ void attend(const KeyTiles& tiles, Queries& q, int clear, uint32_t zero,
                                       const Turn& turn, Ring* ring, RowPair* rows,
                                       float (&o)[128]) {
  float s[32];
  uint32_t p[16];
  uint32_t next[16];
  float scale[2];
  rows->state[0] = rows->state[1] = {-INFINITY, 0.0f};
  // 1. Scores of the first tile.
  ring->wait(ring->at);
  turn.take();
  wgmma_fence();
  ask_scores(s, q, ring->keys + ring->place(ring->at));
  wgmma_commit();
  turn.give();
  wgmma_wait<0>();
  pin(s);
  ring->release(ring->at);
  ring->at.advance();
  if (tiles.begin * kKeys + kKeys - 1 > clear) mask(s, tiles.begin * kKeys, *rows);
  softmax(s, rows, p, scale);
  // 2. Scores of tile j and outputs of tile j - 1.
#pragma unroll 1
  for (int j = tiles.begin + 1; j < tiles.end; ++j) {
    asm volatile("" : "+r"(q.descriptor));  // sixteen descriptors are cheaper made than kept
    const Cursor k = ring->at;
    const Cursor v = k.ahead(1);
    ring->at = k.ahead(2);
    ring->wait(k);
    ring->wait(v);
    turn.take();
    pin(p);
    pin(o);
    wgmma_fence();
    ask_scores(s, q, ring->keys + ring->place(k));
    wgmma_commit();
    ask_outputs(o, p, ring->values + ring->place(v), j > tiles.begin + 1);
    wgmma_commit();
    turn.give();
    wgmma_wait<1>();
    pin(s);
    ring->release(k);
    if (j * kKeys + kKeys - 1 > clear) mask(s, j * kKeys, *rows);
    softmax(s, rows, next, scale);
    wgmma_wait<0>();
    pin(o);
    pin(p);
    ring->release(v);
    rescale(o, scale);
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = next[i] ^ zero;
  }
  // 3. Outputs of the last tile.
  ring->wait(ring->at);
  turn.take();
  pin(p);
  pin(o);
  wgmma_fence();
  ask_outputs(o, p, ring->values + ring->place(ring->at), tiles.end - tiles.begin > 1);
  wgmma_commit();
  turn.give();
  wgmma_wait<0>();
  pin(o);
  ring->release(ring->at);
  ring->at.advance();
  rows->state[0].l = quad_sum(rows->state[0].l);
  rows->state[1].l = quad_sum(rows->state[1].l);
}

__device__ __forceinline__ void consume(const Params& params, Shared* shared, uint32_t rank) {
  const Plan& plan = params.plan;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = __shfl_sync(0xffffffffu, thread / 128, 0);
  const int row = thread / 32 * 16 + thread % 32 / 4;
  const Turn turn{group};
  Ring ring{shared_address(shared->full), shared_address(shared->empty),
            swizzled_tile(shared_address(shared->ring)),
            swizzled_columns<kPanelBytes>(shared_address(shared->ring)), Cursor{}};
  const uint32_t query_rows =
      shared_address(shared->queries) + static_cast<uint32_t>(group) * (64 * 128);
  Queries q;
  q.descriptor = swizzled_tile(query_rows);
  const uint32_t queries_full = shared_address(&shared->queries_full);
  const uint32_t queries_empty = shared_address(&shared->queries_empty);
  float* parked = params.parked + static_cast<int64_t>(blockIdx.x) * kPartFloats;
  float o[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) o[i] = 0.0f;
  if (group == 1) turn.give();
#pragma unroll 1
  for (uint32_t parity = 0;; parity ^= 1) {
    barrier_wait(queries_full, parity);
    const Unit& unit = shared->unit[parity];
    if (unit.num_keys == 0) return;
    q.load(query_rows);
    RowPair rows;
    State joined[2];
    {
      const int flat = unit.first_flat + static_cast<int>(rank) * kTileRows + row;
      rows.last[0] = flat / plan.group;
      rows.last[1] = (flat + 8) / plan.group;
    }
    const int clear =
        (unit.first_flat + static_cast<int>(rank) * kTileRows + group * 64) / plan.group;
#pragma unroll 1
    for (int span = unit.span; span < unit.end_span; ++span) {
      attend(key_tiles(unit, span), q, clear, params.zero, turn, &ring, &rows, o);
      Leave to{};
      to.joins = span > unit.span;
      to.finishes = plan.split_spans == 0 && span + 1 == unit.end_span;
      if (to.joins) {
        to.factors[0] = join(&joined[0], rows.state[0]);
        to.factors[1] = join(&joined[1], rows.state[1]);
      } else {
        joined[0] = rows.state[0];
        joined[1] = rows.state[1];
      }
      if (span + 1 == unit.end_span && thread % 32 == 0) barrier_arrive(queries_empty);
      const int flat = unit.first_flat + static_cast<int>(rank) * kTileRows + row;
      to.part = reinterpret_cast<float4*>(parked) + thread;
      if (plan.split_spans != 0) {
        const int64_t part = part_of(plan, unit.image + static_cast<int>(rank), span);
        to.part = reinterpret_cast<float4*>(params.parts + part * kPartFloats) + thread;
        State* states = params.states + part * kTileRows + row;
        if (thread % 4 == 0) {
          states[0] = joined[0];
          states[8] = joined[1];
        }
      } else if (to.finishes) {
        to.heads[0] = head_operands(params.op, plan, unit, flat);
        to.heads[1] = head_operands(params.op, plan, unit, flat + 8);
        to.inverse[0] = 1.0f / joined[0].l;
        to.inverse[1] = 1.0f / joined[1].l;
        to.range_flag = params.op.range_flag;
      }
      leave(o, to);
    }
  }
}

__global__ void __cluster_dims__(kClusterTiles, 1, 1) __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Params params, const StepView step) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto* shared = reinterpret_cast<Shared*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const uint32_t rank = block_of_cluster();
  const int cluster = static_cast<int>(blockIdx.x) / kClusterTiles;
  pdl_launch();
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumers / 32;
    for (int i = 0; i < kSlots; ++i) {
      barrier_init(shared_address(&shared->full[i]), 1);
      barrier_init(shared_address(&shared->empty[i]), kConsumerWarps * kClusterTiles);
    }
    barrier_init(shared_address(&shared->queries_full), 1);
    barrier_init(shared_address(&shared->queries_empty), kConsumerWarps);
    barrier_init_fence();
  }
  cluster_sync();
  pdl_wait();
  if (warp >= kConsumers / 32) {
    lower_registers<40>();
    if (threadIdx.x == kConsumers) produce(params, step, shared, cluster, rank);
    __syncwarp();
  } else {
    raise_registers<232>();
    consume(params, shared, rank);
  }
  // Nobody's memory goes while others still write to it.
  cluster_sync();
}

}  // namespace sluice::cuda::prefill
